"""Defines the stages of a search and the records that they exchange, each once.

- `encoding`: contents in, encodings out
- `shard`: one shard of an index; `retrieval`: its queries; `shard_answer`: its answers; `hit`: hits
- `reranking`: candidates in, match scores out
- `stage`: a stage that follows the rerank; `neighbours`: what one by neighbours asks
- `candidate_store`: where a rerank reads its candidates
- `items`: an item as a shard stores it; `item_write`: what changes a shard
- `notes`: small texts that a shard keeps, and who may write an index; `aliases`: which one serves
- `index_info`: the model of an index, and the check of embeddings against it
- `unit_length`, `finite`: checks of embeddings and of any values

A record is checked when it is made, so no caller of a stage can miss a check. A stage is local,
behind a socket, or an outside engine; a search cannot tell which. Nothing here knows gRPC or torch.
"""
