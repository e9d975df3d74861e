"""Calls the stages behind sockets: gRPC's stubs with the messages of tandem.wire.

encoder, shard, reranker  one stage each: a stub, and the conversions of its messages
index_engine              what an outside engine is; chosen_engine: which one has a shard's items
engine_metrics            how long its calls take, and how many wait
pgvector, milvus          shards in outside engines
move                      moves all items of some shards to others
model                     the description of a service's model: the call and the service
startup                   checks at start that enough services are serving
"""
