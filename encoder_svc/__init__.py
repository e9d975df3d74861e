"""encoder_svc: encodes contents into embeddings and cross-encoder tokens.

servicer         the gRPC methods
encoder          tokenizes texts, decodes images, and calls the model
query_encodings  caches the encodings of queries, also for when the model is down
encoding_cache   the cache and its keys
"""
