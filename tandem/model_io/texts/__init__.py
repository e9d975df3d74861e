"""Splits texts into token ids, the same way in training, export and serving.

- text_rules: how a text becomes token ids, as data
- text: a text to token ids, or to windows of them; visible_text: what a reader sees of it
- tokenizer_file, tokenizer_steps: a tokenizer's file, checked; special_tokens: their ids
"""
