"""Ingests and removes items.

ingest             Ingester: encodes a batch, stores it on its shards
ingest_stream      keeps the batches of one stream in order
removal            Remover: deletes items or an index on all shards
consistency_token  names the writes that a later search must see
write_id           derives each shard's request id
"""
