"""Defines the stages of a search and the records that they exchange, each once.

- `encoding`: contents in, encodings out
- `retrieval`: one shard of an index; `hit`: what it finds
- `reranking`: candidates in, match scores out
- `neighbours`: reranking by neighbours

A stage is local, behind a socket, or an outside engine; a search cannot tell which. Nothing here
knows gRPC, protobuf's messages or torch.
"""
