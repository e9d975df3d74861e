"""The outcome of reordering by neighbours."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.inference_cost import InferenceCost
from tandem.errors import (
    DeadlineExceeded,
    NeighbourModelMissing,
    NeighboursUnavailable,
    RankingInvalid,
    TandemError,
)
from tandem.search.metrics import NEIGHBOUR_STOPS


class NeighbourStop(enum.Enum):
    """Says why reordering by neighbours ended; names are the contract's."""

    COMPLETE = "complete"
    NOT_SERVED = "not_served"
    NOT_APPLICABLE = "not_applicable"
    MODEL_MISMATCH = "model_mismatch"
    TOO_FEW_ITEMS = "too_few_items"
    TIME = "time"
    UNAVAILABLE = "unavailable"
    OUTPUT_INVALID = "output_invalid"
    OVERLOADED = "overloaded"

    @property
    def is_short(self) -> bool:
        """Whether nothing was scored that could have been."""
        return self not in (NeighbourStop.COMPLETE, NeighbourStop.NOT_APPLICABLE)


for _each in NeighbourStop:
    # A counter that first appears at its first count hides that count from rate().
    NEIGHBOUR_STOPS.labels(_each.value)


@dataclass(frozen=True, slots=True)
class NeighbourOutcome:
    """Holds the neighbour model's scores, or the reason why there are none."""

    stop: NeighbourStop
    scores: Mapping[str, float] = field(default_factory=dict)
    """By item id, of the first hits."""
    neighbour_model: str = ""
    """The fingerprint of the model that scored; empty if none did."""
    missing: Mapping[int, TandemError] = field(default_factory=dict)
    """Why the neighbours lack a shard's items, by its number."""
    cost: InferenceCost = field(default_factory=InferenceCost)

    def check_complete(self) -> None:
        """Raises DeadlineExceeded or NeighboursUnavailable unless all shards' items were read.

        Raises RankingInvalid if the query or the index cannot be ordered by neighbours, and
        NeighbourModelMissing if no model is there to do it.
        """
        if self.stop is NeighbourStop.NOT_APPLICABLE:
            raise RankingInvalid(
                why="neighbours_required is set, but the neighbour model orders items of the other "
                "modality than a query with one embedding, and at least one must be found; drop "
                "neighbours_required"
            )
        if self.stop is NeighbourStop.TOO_FEW_ITEMS and not self.missing:
            # No retry helps, as it may where shards are missing.
            raise RankingInvalid(
                why="neighbours_required is set, but the index has fewer texts or images than the "
                "neighbour model compares with; ingest more, or drop neighbours_required"
            )
        if self.stop is NeighbourStop.NOT_SERVED:
            raise NeighbourModelMissing
        if self.stop is NeighbourStop.TIME:
            raise DeadlineExceeded(what="the order by neighbours")
        if self.stop.is_short or self.missing:
            raise NeighboursUnavailable(stop=self.stop.name, missing_shards=sorted(self.missing))
