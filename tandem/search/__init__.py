"""Answers a search over all shards, and writes items to them.

orchestrator      `Orchestrator`: every call of the public API; assembly: over which stages
settings          the limits and defaults that an operator configures
search            `Searcher`: one query through all stages; batch_search: several in shared calls
query_encoder     composes a query's parts into embeddings and tokens
retrieval         asks all shards, and stops waiting for late ones
coverage          how much of an index a search saw, and how much it must
degradation       names the ways in which an answer is degraded
time_budget       divides a search's time among its stages
shard_map         maps items to shards
metrics           counts, and the timing of stages

rerank/           decides how many candidates the cross-encoder scores
neighbours/       reorders the first items by their neighbours
ranking/          orders and explains hits
contents/         reads stored items, and scores documents
cursors/          the remaining items of an answer, and pages of them
indexes/          lists and describes indexes
writes/           ingests and removes items
calls/            deadlines, retries, circuit breakers, and calls that searches share
"""
