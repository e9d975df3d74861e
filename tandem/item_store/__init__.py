"""Stores a shard's items in LMDB: records, change log, group commit, checks and backups."""
