"""Encodes a query, retrieves hits from all shards, and composes the answer.

search         Searcher: one query through all stages
batch_search   BatchSearcher: several queries in shared calls
query_encoder  composes a query's parts into embeddings and tokens
retrieval      asks all shards, and stops waiting for late ones
time_budget    divides a search's time among its stages
degradation    names the ways in which an answer is degraded
"""
