"""How much of an index a search saw, and how much it must."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.contract.content import Modality
from tandem.contract.search_path import ShardRetrieval
from tandem.errors import DeadlineExceeded, ItemCorrupt, ServiceUnavailable, TandemError

MISSING_ERRORS: tuple[type[TandemError], ...] = (ServiceUnavailable, DeadlineExceeded, ItemCorrupt)
"""What makes a shard missing. Any other error is the whole search's: the caller's fault, or one
that the other shards' items would only hide."""


@dataclass(frozen=True, slots=True)
class SearchCoverage:
    """Which shards answered a search, and how many items they have."""

    shard_count: int
    covered_item_count: int
    """Items of the wanted modality on the shards that answered."""
    item_count: int | None
    """Those, and what the missing shards had when they last answered; None if one never did."""
    missing: Mapping[int, TandemError]
    """Why a shard did not answer, by its number."""
    retrievals: Sequence[ShardRetrieval] = ()
    """How the shards that answered found what they found."""

    @property
    def answered_shard_count(self) -> int:
        """Shards that answered."""
        return self.shard_count - len(self.missing)

    @property
    def is_rebuilding(self) -> bool:
        """Whether a shard compared every item, for the index that it should have is not there."""
        return any(retrieval.path.is_rebuilding for retrieval in self.retrievals)

    @property
    def share(self) -> float:
        """0 to 1: of the items where their number is known, else of the shards."""
        if not self.missing:
            return 1.0
        if self.item_count:
            return self.covered_item_count / self.item_count
        return self.answered_shard_count / self.shard_count


def joined_coverage(coverages: Sequence[SearchCoverage]) -> SearchCoverage:
    """Returns what searches of the same shards for different modalities saw together."""
    if len(coverages) == 1:
        return coverages[0]
    counts = [coverage.item_count for coverage in coverages]
    known = [count for count in counts if count is not None]
    return SearchCoverage(
        coverages[0].shard_count,
        sum(coverage.covered_item_count for coverage in coverages),
        sum(known) if len(known) == len(counts) else None,
        {number: why for coverage in coverages for number, why in coverage.missing.items()},
        [retrieval for coverage in coverages for retrieval in coverage.retrievals],
    )


@dataclass(frozen=True, slots=True)
class CoverageDemand:
    """What one search takes for enough."""

    minimum_share: float
    required_shards: Collection[int]
    """Shards that may not be missing, by number."""

    def is_lost_with(self, failed_shards: Collection[int]) -> bool:
        """Returns whether it can no more be met, whatever other shards answer."""
        return any(shard in self.required_shards for shard in failed_shards)

    def is_met_by(self, coverage: SearchCoverage) -> bool:
        """Returns whether the answer may be given. One that no shard gave never is."""
        return (
            coverage.answered_shard_count > 0
            and not self.is_lost_with(coverage.missing)
            and coverage.share >= self.minimum_share
        )


@dataclass(slots=True)
class LastItemCounts:
    """What each shard last said that it has of an index and modality."""

    _counts: dict[tuple[str, Modality, int], int] = field(default_factory=dict)

    def note(self, index_id: str, modality: Modality, counts: Mapping[int, int]) -> None:
        """Remembers counts by shard number."""
        for shard, count in counts.items():
            self._counts[index_id, modality, shard] = count

    def coverage(
        self,
        index_id: str,
        modality: Modality,
        shard_count: int,
        answered: Mapping[int, int],
        missing: Mapping[int, TandemError],
        retrievals: Sequence[ShardRetrieval] = (),
    ) -> SearchCoverage:
        """Returns the coverage of shards that `answered` with so many items each."""
        covered = sum(answered.values())
        last = [self._counts.get((index_id, modality, shard)) for shard in missing]
        known = [count for count in last if count is not None]
        total = covered + sum(known) if len(known) == len(last) else None
        return SearchCoverage(shard_count, covered, total, missing, retrievals)
