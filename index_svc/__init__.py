"""One shard: its items, durably, and exact nearest-neighbour search over them."""
