"""Shares a service's capacity among its callers.

- `places`: places and bytes, of which no caller takes all
- `admission`: limits on what is in flight, and retry delays
- `message_scanner`: what a message has in it, before it is parsed
- `crowd`: whose place a newcomer gets
- `caller_turns`: a pool's threads, in turns by caller
- `single_flight_cache`: computes each missing value once
- `cache_metrics`: hits, misses and size of a cache
"""
