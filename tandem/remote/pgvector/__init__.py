"""Stores and searches a shard's items in Postgres with pgvector; needs the extra `pgvector`.

shard        the stage: searches, reads, describes, deletes
writes       one transaction a batch: rows, counts, change log, request id
candidates   what a rerank reads
tables       the schema, how it is made and checked, and rows
conditions   filters as SQL
connections  connections, deadlines, statements, and the names of Postgres' errors
standbys     how far they are behind

Postgres is the truth and the index; processes over it have no state, and any number may run.
"""
