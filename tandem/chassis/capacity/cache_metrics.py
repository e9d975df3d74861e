"""Exports the metrics of a cache."""

from tandem.chassis.telemetry.metrics import Counter, Gauge

_HITS = Counter(
    "tandem_cache_hits_total",
    "Values found in the cache, or being computed for another call.",
    ["cache"],
)
_MISSES = Counter(
    "tandem_cache_misses_total",
    "Values that a call had to compute.",
    ["cache"],
)
_EVICTIONS = Counter(
    "tandem_cache_evictions_total",
    "Values evicted to make room.",
    ["cache"],
)
_BYTES = Gauge(
    "tandem_cache_bytes",
    "Size of the cached values.",
    ["cache"],
)
_LIMIT = Gauge(
    "tandem_cache_limit_bytes",
    "Size limit; 0 if the cache is off.",
    ["cache"],
)
_ENTRIES = Gauge(
    "tandem_cache_entry_count",
    "Cached values.",
    ["cache"],
)


class CacheMetrics:
    """Counters and gauges of one cache; caches of one name in one process are added up."""

    def __init__(self, cache: str) -> None:
        self._hits = _HITS.labels(cache)
        self._misses = _MISSES.labels(cache)
        self._evictions = _EVICTIONS.labels(cache)
        self._bytes = _BYTES.labels(cache)
        self._limit = _LIMIT.labels(cache)
        self._entries = _ENTRIES.labels(cache)
        self._used_bytes = self._entry_count = self._max_bytes = 0

    def looked_up(self, hit_count: int, miss_count: int) -> None:
        """Counts hits and misses."""
        self._hits.inc(hit_count)
        self._misses.inc(miss_count)

    def changed(self, used_bytes: int, entry_count: int, evicted_count: int) -> None:
        """Sets the current size, and counts evictions."""
        self._bytes.inc(used_bytes - self._used_bytes)
        self._entries.inc(entry_count - self._entry_count)
        self._evictions.inc(evicted_count)
        self._used_bytes, self._entry_count = used_bytes, entry_count

    def limited(self, max_bytes: int) -> None:
        """Sets the size limit."""
        self._limit.inc(max_bytes - self._max_bytes)
        self._max_bytes = max_bytes
