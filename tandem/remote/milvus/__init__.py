"""Keeps a shard's items in Milvus, and their contents in an object store (decision 93).

engine_url      which server and object store the services use
shard           the shard: searches, reads and descriptions
search          the nearest items, as exactly as a filter allows
writes          batches in one step each; notes: what is deleted minutes after them
followed_writes what is written while somebody follows; fences, and who may write
shard_state     what the services agree on, in one object
collections     the collection of each index: made, remembered for a second, read
typed_fields    the attributes that have a field of their own, and filters by them
connection      calls with a deadline, and Milvus' errors as ours
item_objects    the object store; candidates: what rerank_svc reads
"""
