"""How much of an index a search saw, and how much it must."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.contract.content import Modality
from tandem.contract.search.answer import Coverage
from tandem.contract.search.answer_names import ErrorReason
from tandem.contract.search_path import KeywordState, ShardRetrieval
from tandem.errors import (
    DeadlineExceeded,
    ItemCorrupt,
    ServiceUnavailable,
    ShardsMissing,
    TandemError,
)

MISSING_ERRORS: tuple[type[TandemError], ...] = (ServiceUnavailable, DeadlineExceeded, ItemCorrupt)
"""Errors that make a shard missing. Any other error fails the whole search: it is the caller's
fault, or one that the other shards' items would only hide."""


def missing_reasons(missing: Mapping[int, TandemError]) -> Mapping[int, ErrorReason]:
    """Returns why each shard did not answer, by its number."""
    return {number: ErrorReason(error.reason) for number, error in sorted(missing.items())}


@dataclass(frozen=True, slots=True)
class SearchCoverage:
    """Counts the shards that answered a search, and their items."""

    shard_count: int
    covered_item_count: int
    """Items of the wanted modality on the shards that answered."""
    item_count: int | None
    """Those, plus the missing shards' items when they last answered; None if one never did."""
    missing: Mapping[int, TandemError]
    """Why a shard did not answer, by its number."""
    retrievals: Sequence[ShardRetrieval] = ()
    """How the shards that answered found their hits."""

    @property
    def answered_shard_count(self) -> int:
        """The number of shards that answered."""
        return self.shard_count - len(self.missing)

    @property
    def is_rebuilding(self) -> bool:
        """Whether a shard compared every item because its index is being rebuilt."""
        return any(retrieval.path.is_rebuilding for retrieval in self.retrievals)

    @property
    def keyword_states(self) -> Collection[KeywordState]:
        """Whether the shards that know the index searched by words; empty if they were not to."""
        states = (retrieval.keyword_state for retrieval in self.retrievals)
        return [state for state in states if state is not None]

    @property
    def summary(self) -> Coverage:
        """What an answer says of it."""
        return Coverage(
            answered_shard_count=self.answered_shard_count,
            shard_count=self.shard_count,
            covered_item_count=self.covered_item_count,
            item_count=self.item_count,
            missing_shards=missing_reasons(self.missing),
        )

    @property
    def share(self) -> float:
        """The share covered, 0 to 1: of the items if their number is known, else of the shards."""
        if not self.missing:
            return 1.0
        if self.item_count:
            return self.covered_item_count / self.item_count
        return self.answered_shard_count / self.shard_count


def joined_coverage(coverages: Sequence[SearchCoverage]) -> SearchCoverage:
    """Joins the coverages of searches of the same shards for different modalities."""
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


def refusal_of(coverage: SearchCoverage, what: str, *, is_demanded: bool) -> TandemError:
    """Returns the error for too low a coverage of `what`, or for one that the caller demanded."""
    is_all_late = all(isinstance(error, DeadlineExceeded) for error in coverage.missing.values())
    if not coverage.answered_shard_count and is_all_late:
        return DeadlineExceeded(what=f"{what}, on every shard")
    return ShardsMissing(
        missing={number: error.reason for number, error in coverage.missing.items()},
        shard_count=coverage.shard_count,
        is_demanded=is_demanded,
    )


@dataclass(frozen=True, slots=True)
class CoverageDemand:
    """States how much coverage one search needs."""

    minimum_share: float
    required_shards: Collection[int]
    """Shards that may not be missing, by number."""

    def is_lost_with(self, failed_shards: Collection[int]) -> bool:
        """Returns whether the demand cannot be met any more, whatever other shards answer."""
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
    """Remembers the item count that each shard last reported for an index and modality."""

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
        """Returns the coverage, given the item counts of the shards that `answered`."""
        covered = sum(answered.values())
        last = [self._counts.get((index_id, modality, shard)) for shard in missing]
        known = [count for count in last if count is not None]
        total = covered + sum(known) if len(known) == len(last) else None
        return SearchCoverage(shard_count, covered, total, missing, retrievals)
