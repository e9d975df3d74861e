"""Implements the stages of tandem.stages in this process; tandem.remote is their other form.

- `encoding/`: contents to encodings, with a cache of queries
- `shard/`: one shard: rows, FAISS, words, attributes, and their upkeep
- `item_store/`: the LMDB store that a shard searches and a reranker reads
- `reranking/`: match logits of stored candidates

Nothing here knows gRPC or torch; encoding, shard and reranking do not know one another.
"""
