"""Divides a search's time among its stages, by the shares of SearchSettings.

Stages before the rerank may use the rerank's time, but not the reserve: a short search loses rerank
depth first, then the rerank, then coverage, then its answer.
"""

from dataclasses import dataclass
from typing import Self

from tandem.contract.deadline import Deadline
from tandem.search.settings import SearchSettings

# For returning the answer on a loaded machine; at most a quarter of a short time.
_LEAST_RESERVE_SECONDS = 0.02


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
    def until(cls, deadline: Deadline, settings: SearchSettings, stages_share: float = 0.0) -> Self:
        """Divides the time from now on; the rerank leaves a share to the stages after it."""
        whole_seconds = max(0.0, deadline.left())
        least_seconds = min(_LEAST_RESERVE_SECONDS, whole_seconds / 4)
        before_reserve = deadline.earlier(
            max(settings.reserve_time_share * whole_seconds, least_seconds)
        )
        return cls(
            encode_end=Deadline.after(settings.encode_time_share * whole_seconds),
            retrieval_end=before_reserve,
            rerank_end=before_reserve.earlier(stages_share * whole_seconds),
            stages_end=before_reserve,
            end=deadline,
        )
