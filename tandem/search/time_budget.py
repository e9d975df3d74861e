"""Divides a search's time among its stages."""

from dataclasses import dataclass
from typing import Self

from tandem.contract.deadline import Deadline

# For returning the answer on a loaded machine; at most a quarter of a short time.
_LEAST_RESERVE_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """States each stage's share of a search's time, 0 to 1.

    Stages before the rerank may use the rerank's time, but not the reserve: a short search loses
    rerank depth first, then the rerank, then coverage, then its answer.
    """

    encode: float = 0.7
    """Encoding that takes longer fails the search."""
    retrieval: float = 0.5
    """Of the time left after encoding: how long to wait for a late shard if the others cover
    enough."""
    retrieval_seconds: float = 2.0
    """The longest such wait: a shard that hangs does not cost a patient caller half of its time."""
    reserve: float = 0.1
    """For what follows the rerank: ranking, fetching contents, returning the answer."""


TIME_SHARES = TimeShares()
"""The shares where nothing else is set."""


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """Holds the deadline of each stage."""

    encode_end: Deadline
    retrieval_end: Deadline
    rerank_end: Deadline
    stages_end: Deadline
    """Of the stages after the rerank."""
    end: Deadline
    """The caller's own deadline."""

    @classmethod
    def until(cls, deadline: Deadline, shares: TimeShares, stages_share: float = 0.0) -> Self:
        """Divides the time from now on; the rerank leaves a share to the stages after it."""
        whole_seconds = max(0.0, deadline.left())
        least_seconds = min(_LEAST_RESERVE_SECONDS, whole_seconds / 4)
        before_reserve = deadline.earlier(max(shares.reserve * whole_seconds, least_seconds))
        return cls(
            encode_end=Deadline.after(shares.encode * whole_seconds),
            retrieval_end=before_reserve,
            rerank_end=before_reserve.earlier(stages_share * whole_seconds),
            stages_end=before_reserve,
            end=deadline,
        )
