"""Reads checkpoints of BERT, MiniLM, RoBERTa and XLM-R as others publish them.

- checkpoint.py: the front door; opens a folder or a hub name and fills a JointEncoder
- files.py: finds and reads the files; vocabulary.py: BERT's vocab.txt
- weights.py: which published weight goes where
- pickled_tensors.py: tensors from a pickle, without running code
"""
