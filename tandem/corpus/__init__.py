"""Reads and generates corpora: streams of pictures with captions.

- records.py: `Record` and `Caption`, which every corpus gives
- judged_queries.py: searches with the items that a person found relevant, as TREC qrels
- scenes/: composed scenes, generated from a seed; emoji.py: the emoji drawings
- readers/: corpora on disk, one file per layout
- left_out.py: what a reader skipped; errors.py: what can be wrong with a corpus
- readable_records.py: which records a model can take; record_regions.py: a record's regions
"""
