"""Scores candidates with the cross-encoder, next to one shard.

local_reranker     the stage: scores candidates and graphs
reranker           scores queries' candidates in batches, within their deadline
candidate_reader   reads candidates' tokens from the shard's item store
picture_tokens     computes image tokens from stored pictures, where an index has none
pair               checks a (text, image) pair before the model reads it
match_logit_cache  caches logits by query and item version
remote/            a cross-encoder behind an HTTP API instead
metrics            what Prometheus reads
"""
