"""Stores and searches a shard's items in Postgres with pgvector; needs the extra `pgvector`.

engine       what index_svc and rerank_svc take of it
shard        the stage: searches, reads, describes, deletes
writes       one transaction a batch: rows, counts, change log, request id
candidates   what a rerank reads
tables       the schema, how it is made and checked, and one row
conditions   filters as SQL
connections  connections, deadlines, and the names of Postgres' errors
standbys     how far they are behind

Postgres is the truth and the index; processes over it have no state, and any number may run.
"""
