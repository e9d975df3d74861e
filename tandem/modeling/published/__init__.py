"""Reads folders in the hub's layout, and BERT, MiniLM, RoBERTa and XLM-R from them.

- checkpoint.py: the front door; opens a folder or a hub name and fills a JointEncoder
- folder.py: a folder, the digests of its files and its refusals; licence.py: the model card's
- files.py: finds and reads the files
- weights.py: BERT's shape in our terms, and which published weight goes where
- pickled_tensors.py: tensors from a pickle, without running code
"""
