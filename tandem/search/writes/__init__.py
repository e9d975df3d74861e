"""Ingests, changes and removes items.

ingest             Ingester: encodes a batch, stores it on its shards
ingest_stream      keeps the batches of one stream in order
removal            Remover: deletes items or an index on all shards
changes            Changer: changes and copies items without encoding
selected           writes to all items of a selection
shard_writes       writes on the shards that own items
consistency_token  names the writes that a later search must see
write_id           derives each shard's request id
"""
