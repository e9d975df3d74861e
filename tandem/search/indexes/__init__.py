"""Lists the indexes of all shards, and describes one."""
