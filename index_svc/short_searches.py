"""Which searches are so short that going to a thread and back would take a third as long again."""

from __future__ import annotations

from index_svc.shard import Query
from tandem.contract.content import Modality

# The event loop does nothing else meanwhile, so this is what any other call may be held up by.
_SHORT_SECONDS = 0.001
_MAX_K = 100
# Of the newest search in the mean: a long one is forgotten after some twenty short ones.
_NEWEST_SHARE = 0.1


class ShortSearches:
    """Remembers how long the searches of each index and modality took; for one thread."""

    def __init__(self) -> None:
        """Expects every search to be long, until one was not."""
        self._mean_seconds: dict[tuple[str, Modality], float] = {}

    def expects(self, query: Query) -> bool:
        """Returns whether the search will be short: one plain query, and those before it were."""
        mean_seconds = self._mean_seconds.get((query.index_id, query.modality))
        return mean_seconds is not None and mean_seconds < _SHORT_SECONDS and _is_plain(query)

    def note(self, query: Query, seconds: float) -> None:
        """Takes in how long a search took: it succeeded, so that made-up ids leave nothing."""
        if not _is_plain(query):
            return
        key = (query.index_id, query.modality)
        mean_seconds = self._mean_seconds.get(key, seconds)
        self._mean_seconds[key] = mean_seconds + _NEWEST_SHARE * (seconds - mean_seconds)


def _is_plain(query: Query) -> bool:
    return len(query.embeddings) == 1 and query.filter is None and query.k <= _MAX_K
