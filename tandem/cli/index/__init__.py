"""`tandem index`, `shard` and `remove`.

index, index_state  an index, of shards and of the orchestrator
attach              `tandem attach`
shard               the store of a shard
remove              `tandem remove` and `index drop`
"""
