"""Serves one shard: stores its items, and finds the nearest ones to an embedding.

    servicer, admin_servicer   IndexService and IndexAdminService, over gRPC
    short_searches             which searches run in the event loop instead of a thread
    shard                      `Shard`: commits writes, applies them to the indexes, searches
    retrieval/                 one index in memory: rows, FAISS index, exact scan, filters
    attributes/                attributes in typed columns, and the conditions on them
    upkeep/                    one thread that rebuilds, snapshots and checks the indexes
    corrupt_shard              what is served instead where the store is damaged
    metrics, shard_gauges      what Prometheus reads
    settings                   the environment variables

The item store (tandem.item_store) is the truth; the indexes are derived from it.
"""
