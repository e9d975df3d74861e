"""Runs a search: encode, retrieve from every shard, rerank, assemble the answer."""
