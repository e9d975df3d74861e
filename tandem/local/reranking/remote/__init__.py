"""Scores candidates with a cross-encoder behind an HTTP API, instead of one in Triton.

endpoint         names the API, its model and its limits
shapes           builds requests of each API, and reads their answers
http_client      posts a request, and names what can go wrong
pictures         encodes pictures for a request
remote_scorer    scores one query's contents, in requests of a limited size
canary           refuses an API whose scores mean nothing
stored_documents reads candidates' contents, and caches them as they are sent
remote_start     sets all of it up from the settings
remote_reranker  scores candidates of the shard, with a cache of logits
"""
