"""Stores one shard's items, and finds the nearest ones to an embedding.

local_shard             the stage: runs the shard's work in threads
shard, settings         commits writes, applies them to the indexes, searches
short_searches          which searches run in the event loop instead of a thread
description             what a shard says of an index
retrieval/              one index in memory: rows, FAISS index, exact scan, filters
attributes/             attributes in typed columns, and the conditions on them
keywords/               items by the words of their texts
upkeep/                 one thread that rebuilds, snapshots and checks the indexes
metrics, shard_gauges   what Prometheus reads

The item store (tandem.local.item_store) is the truth; the indexes are derived from it.
"""
