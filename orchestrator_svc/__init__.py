"""Answers searches over all shards, and ingests and removes items: the public service.

__main__        wires the service and runs it
settings        its environment variables
servicer        SearchService: converts messages, and calls the rooms below
content_servicer ContentService: converts messages, and calls contents/
model_servicer  ModelService: describes the models of the downstream services
metrics         its metrics and the timing of stages
query, depth    what a search asks for
coverage        how much of an index a search saw, and how much it must
content_room    limits the bytes of contents in answers
shard_map       maps items to shards
fan_out         awaits several calls, and cancels the rest if one fails

search/         encodes a query, retrieves hits, and composes the answer
rerank/         decides how many candidates the cross-encoder scores
ranking/        orders and explains hits
contents/       reads stored items, and scores documents
writes/         ingests and removes items
services/       calls the downstream services
wire/           converts messages and cursors
"""
