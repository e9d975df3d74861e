"""Calls the downstream services, with the types of tandem.stages and the messages of tandem.wire.

item_reader     how stored items are read within the bytes of answers
encoder_client  calls encoder_svc
shard_client    calls one shard's index_svc
rerank_client   calls one shard's rerank_svc
batching        the same for several searches in one call
call_batcher    collects requests with equal keys
call_policy     calls with a deadline, a circuit breaker and at most one retry
breaker         the circuit breaker
retry_budget    limits retries over all calls
startup         checks at start that enough services are serving
"""
