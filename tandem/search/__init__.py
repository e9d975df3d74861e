"""Answers a search over all shards, and writes items to them.

search            `Searcher`: one query through all stages; batch_search: several in shared calls
query, depth      what a search asks for
query_encoder     composes a query's parts into embeddings and tokens
retrieval         asks all shards, and stops waiting for late ones
stored_contents   reads the contents of what is returned
coverage          how much of an index a search saw, and how much it must
degradation       names the ways in which an answer is degraded
time_budget       divides a search's time among its stages
shard_map         maps items to shards
fan_out           awaits several calls, and cancels the rest if one fails
metrics           counts, and the timing of stages

rerank/           decides how many candidates the cross-encoder scores
neighbours/       reorders the first items by their neighbours
ranking/          orders and explains hits
contents/         reads stored items, and scores documents
indexes/          lists and describes indexes
writes/           ingests and removes items
calls/            deadlines, retries, circuit breakers, and calls that searches share
"""
