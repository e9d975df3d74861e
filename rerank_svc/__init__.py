"""Candidates into match scores, beside one shard."""
