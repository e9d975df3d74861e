"""Encodes contents into embeddings and the tokens that a cross-encoder reads.

local_encoder    the stage: encodes queries through the cache, and items; its metrics
encoder          tokenizes texts, decodes images, and calls the model
query_encodings  caches the encodings of queries, also for when the model is down
encoding_cache   the cache and its keys
"""
