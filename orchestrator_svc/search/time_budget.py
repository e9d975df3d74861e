"""How a search divides the time that its caller gives it."""

from dataclasses import dataclass
from typing import Self

from tandem.chassis.deadline import Deadline

# What the way back takes on a machine that has more to do; of a short time, at most a quarter.
_LEAST_RESERVE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Of a search's time, 0 to 1.

    A stage that nothing can replace may take from the rerank's time, never from what comes after:
    depth of the rerank is given up first, the rerank next, then coverage, then the answer.
    """

    encode: float = 0.7
    """Encoding ends by then, or the search does."""
    retrieval: float = 0.5
    """Of the time that is left after encoding: a late shard is waited for so long, where the others
    are enough."""
    reserve: float = 0.1
    """Kept back by the rerank for what comes after it: the order, contents, the way back."""


TIME_SHARES = TimeShares()
"""The shares where nothing else is set."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Instants on the monotonic clock by which each stage ends."""

    encode_end: Deadline
    retrieval_end: Deadline
    rerank_end: Deadline
    end: Deadline
    """The caller's own deadline."""

    @classmethod
    def until(cls, deadline: Deadline, shares: TimeShares) -> Self:
        """Divides the time from now on."""
        whole_seconds = max(0.0, deadline.left())
        least_seconds = min(_LEAST_RESERVE_SECONDS, whole_seconds / 4)
        before_reserve = deadline.earlier(max(shares.reserve * whole_seconds, least_seconds))
        return cls(
            encode_end=Deadline.after(shares.encode * whole_seconds),
            retrieval_end=before_reserve,
            rerank_end=before_reserve,
            end=deadline,
        )
