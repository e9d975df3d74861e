"""Predicts which searches are so short that a hop to a thread and back would add 20 to 30 %."""

from tandem.contract.content import Modality
from tandem.stages.retrieval import ShardQuery

# The event loop is blocked meanwhile, so this is how long other calls may wait.
_SHORT_SECONDS = 0.001
_MAX_K = 100
# Weight of the newest search in the mean: a long one is forgotten after some twenty short ones.
_NEWEST_SHARE = 0.1


class ShortSearches:
    """Averages the time of plain searches by index and modality.

    Any thread may call it: an update that a race loses does not matter.
    """

    def __init__(self) -> None:
        self._mean_seconds: dict[tuple[str, Modality], float] = {}

    def expects(self, query: ShardQuery) -> bool:
        """Returns whether a plain query will be short, as the ones before it were."""
        mean_seconds = self._mean_seconds.get((query.index_id, query.modality))
        return mean_seconds is not None and mean_seconds < _SHORT_SECONDS and _is_plain(query)

    def note(self, query: ShardQuery, seconds: float) -> None:
        """Adds the time of a search that succeeded, so that made-up index ids leave no entry."""
        if _is_plain(query):
            key = (query.index_id, query.modality)
            mean_seconds = self._mean_seconds.get(key, seconds)
            self._mean_seconds[key] = mean_seconds + _NEWEST_SHARE * (seconds - mean_seconds)


def _is_plain(query: ShardQuery) -> bool:
    return (
        len(query.embeddings) == 1
        and query.where is None
        and query.retrieve_k <= _MAX_K
        and not query.keywords
    )
