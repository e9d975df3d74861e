"""Calls the stages behind sockets: gRPC's stubs with the messages of tandem.wire.

encoder, shard, reranker  one stage each: a stub, and the conversions of its messages
index_engine              the settings of an outside engine; chosen_engine: which one has the items
engine_shard              what shards in outside engines have in common
engine_metrics            how long an engine's calls take, and how many wait
pgvector, milvus          shards in outside engines
attached                  other programs' tables and collections in them, read-only
move                      moves all items of some shards to others
model                     the description of a service's model: the call and the service
startup                   checks at start that enough services are serving
"""
