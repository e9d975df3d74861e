"""Calls the stages behind sockets: gRPC's stubs with the messages of tandem.wire.

encoder_client  calls encoder_svc
shard_client    calls one shard's index_svc
rerank_client   calls one shard's rerank_svc
startup         checks at start that enough services are serving
"""
