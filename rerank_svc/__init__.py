"""Serves tandem.local.reranking over gRPC, next to one shard.

servicer      the gRPC methods
assembly      puts the parts together; remote_start: with a cross-encoder behind HTTP
shard_items   opens the item store that index_svc writes
settings      the environment variables
"""
