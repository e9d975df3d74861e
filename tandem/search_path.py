"""What a shard and its callers both know of how it finds hits (`tandem.v1.SearchPath`)."""

BEING_BUILT = "the index is being built"
"""The `fallback_reason` of a shard that compares every item because of that."""
