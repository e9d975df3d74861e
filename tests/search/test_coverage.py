"""Coverage, worked by hand: the share that was seen, and when it is enough."""

import pytest

from tandem.contract.content import Modality
from tandem.errors import ServiceUnavailable, TandemError
from tandem.search.coverage import CoverageDemand, LastItemCounts, SearchCoverage

GONE = ServiceUnavailable(service="index-0", why="gone")


def missing(*shards: int) -> dict[int, TandemError]:
    """Returns those shards as not there."""
    return dict.fromkeys(shards, GONE)


@pytest.mark.parametrize(
    ("coverage", "share"),
    [
        (SearchCoverage(4, 100, 100, {}), 1.0),
        (SearchCoverage(4, 0, 0, {}), 1.0),
        (SearchCoverage(4, 90, 100, missing(1)), 0.9),
        (SearchCoverage(4, 90, None, missing(1)), 0.75),
        (SearchCoverage(2, 0, None, missing(0, 1)), 0.0),
    ],
)
def test_the_share_counts_items_if_they_are_known(coverage: SearchCoverage, share: float) -> None:
    """Else of shards: if one never answered, and if there are no items."""
    assert coverage.share == pytest.approx(share)


@pytest.mark.parametrize(
    ("minimum", "required", "shards", "is_met"),
    [
        (0.5, [], [0, 1], True),
        (0.5, [], [0, 1, 2], False),
        (0.0, [], [0, 1, 2, 3], False),
        (0.5, [0], [1], True),
        (0.5, [0], [0], False),
        (0.5, range(4), [3], False),
    ],
)
def test_a_demand_is_met_or_not(
    minimum: float, required: list[int], shards: list[int], is_met: bool
) -> None:
    """Four shards of ten items each; an answer without any shard is never enough."""
    coverage = SearchCoverage(4, 10 * (4 - len(shards)), 40, missing(*shards))

    assert CoverageDemand(minimum, required).is_met_by(coverage) is is_met


def test_a_missing_shard_counts_as_it_last_did() -> None:
    """By index and modality; a later count replaces an earlier one."""
    counts = LastItemCounts()
    counts.note("scenes", Modality.TEXT, {0: 10, 1: 20})
    counts.note("scenes", Modality.TEXT, {0: 11})
    counts.note("scenes", Modality.IMAGE, {0: 500})
    counts.note("emoji", Modality.TEXT, {0: 900})

    coverage = counts.coverage("scenes", Modality.TEXT, 2, {1: 21}, missing(0))

    assert (coverage.covered_item_count, coverage.item_count) == (21, 32)
