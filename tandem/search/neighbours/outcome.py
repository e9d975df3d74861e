"""The outcome of reordering by neighbours."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandem.contract.inference_cost import InferenceCost
from tandem.contract.search.answer import NeighbourSummary
from tandem.contract.search.answer_names import DegradationKind, NeighbourStopReason
from tandem.errors import (
    DeadlineExceeded,
    NeighbourModelMissing,
    NeighboursUnavailable,
    RankingInvalid,
    TandemError,
)
from tandem.search.coverage import missing_reasons
from tandem.search.metrics import NEIGHBOUR_STOPS
from tandem.stages.stage import StageOutcome

for _each in NeighbourStopReason:
    # A counter that first appears at its first count hides that count from rate().
    if _each is not NeighbourStopReason.UNSPECIFIED:
        NEIGHBOUR_STOPS.labels(_each.lower())


@dataclass(frozen=True, slots=True)
class NeighbourOutcome:
    """Holds the neighbour model's scores, or the reason why there are none."""

    stop: NeighbourStopReason
    scores: Mapping[str, float] = field(default_factory=dict)
    """By item id, of the first hits."""
    neighbour_model: str = ""
    """The fingerprint of the model that scored; empty if none did."""
    missing: Mapping[int, TandemError] = field(default_factory=dict)
    """Why the neighbours lack a shard's items, by its number."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    needed_rerank_k: int = 0
    """The rerank that the model learned over, if this query can never have it; otherwise 0."""

    @property
    def as_stage(self) -> StageOutcome:
        """What an answer takes of it."""
        degradations: tuple[DegradationKind, ...] = ()
        if self.stop.is_short:
            degradations = (DegradationKind.NEIGHBOURS_SKIPPED,)
        elif self.missing:
            degradations = (DegradationKind.NEIGHBOURS_PARTIAL,)
        summary = NeighbourSummary(
            len(self.scores), self.stop, self.neighbour_model, missing_reasons(self.missing)
        )
        return StageOutcome(self.scores, self.cost, degradations, {"neighbours": summary})

    def check_complete(self) -> None:
        """Raises DeadlineExceeded or NeighboursUnavailable unless all shards' items were read.

        Raises RankingInvalid if the query or the index cannot be ordered by neighbours, and
        NeighbourModelMissing if no model is there to do it.
        """
        if self.stop is NeighbourStopReason.NOT_APPLICABLE:
            raise RankingInvalid(
                why="neighbours_required is set, but the neighbour model orders items of the other "
                "modality than a query with one embedding, and at least one must be found; drop "
                "neighbours_required"
            )
        if self.stop is NeighbourStopReason.TOO_FEW_ITEMS and not self.missing:
            # No retry helps, as it may where shards are missing.
            raise RankingInvalid(
                why="neighbours_required is set, but the index has fewer texts or images than the "
                "neighbour model compares with; ingest more, or drop neighbours_required"
            )
        if self.needed_rerank_k and not self.missing:
            raise RankingInvalid(
                why="neighbours_required is set, but the neighbour model learned over the logits "
                f"of the {self.needed_rerank_k:,} items nearest to the query in the whole index; "
                f"set rerank_k to {self.needed_rerank_k:,}, without fusion, adaptive_depth or a "
                "filter that leaves out nearer items, or drop neighbours_required"
            )
        if self.stop is NeighbourStopReason.NOT_SERVED:
            raise NeighbourModelMissing
        if self.stop is NeighbourStopReason.TIME:
            raise DeadlineExceeded(what="the order by neighbours")
        if self.stop.is_short or self.missing:
            raise NeighboursUnavailable(stop=self.stop.name, missing_shards=sorted(self.missing))
