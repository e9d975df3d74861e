"""Keeps a shard's items in Milvus, and their contents in an object store (decision 93).

engine          what the services make of the settings
shard           the shard: searches, reads and writes
rows            a collection's rows: packed for a write, read by id
collections     the collection of each index: made, described, remembered for a second
expressions     filters as Milvus' expressions, as far as its typed fields reach
typed_fields    the attributes that have a field of their own
connection      calls with a deadline, and Milvus' errors as ours
item_objects    the records and the answers by request id in the object store
candidates      what rerank_svc reads
"""
