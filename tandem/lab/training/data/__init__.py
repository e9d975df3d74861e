"""Draws batches from captioned pictures.

- pair_pool.py: batches for every objective, of pooled_images.py's image tokens
- batches.py: what a batch holds, and tokens of texts; caption_tokenizer.py learns a vocabulary
- caption_groups.py: pictures that are no negatives of each other; mined_negatives.py: hard ones
"""
