"""Reads corpora in the published layouts: Karpathy JSON, Multi30k, WebDataset, parquet, folders."""
