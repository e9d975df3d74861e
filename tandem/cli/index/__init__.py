"""`tandem index`, `shard`, `set` and `remove`.

index, index_state  an index, of shards and of the orchestrator
generations         `tandem index create` and `rollback`
promote             `tandem index promote`
attach              `tandem attach`
items               `tandem set` and `index items`
shard               the store of a shard
remove              `tandem remove` and `index drop`
set_attributes      `tandem set`
export              `tandem export`
"""
