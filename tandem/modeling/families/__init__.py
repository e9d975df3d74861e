"""Reads published vision-language models, one file a family, through transformers' own classes.

A family turns a folder in the hub's layout into a `PublishedModel` (published_model.py): three
functions as torch modules, and the rules by which contents become their inputs.
"""
