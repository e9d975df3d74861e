"""Serves one shard (tandem.local.shard) over gRPC.

servicer, admin_servicer   IndexService and IndexAdminService
corrupt_shard              what is served instead where the store is damaged
assembly                   puts the parts together
settings                   the environment variables
"""
