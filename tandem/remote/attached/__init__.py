"""Searches tables and collections that another program fills, read-only (decision 100).

attachment        the file that maps them, and what `tandem attach` found of each
shard             what an attached shard and its candidates are, over any engine
pgvector, milvus  the engines' own shards over such a table or collection
model_check       whether the served model made the vectors
"""
