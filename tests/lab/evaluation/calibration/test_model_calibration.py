"""A model's calibration: fitted on dev, reported on test."""

import pytest

from tandem.lab.evaluation.calibration.model_calibration import (
    BOTH,
    FittedCalibration,
    depth_rows,
)
from tests.support.evaluation.made_pools import made_pools

DEV = {"text→image": made_pools(seed=1), "image→text": made_pools(seed=2)}
TEST = {"text→image": made_pools(seed=3), "image→text": made_pools(seed=4)}


@pytest.fixture(name="fitted", scope="module")
def _fitted() -> FittedCalibration:
    return FittedCalibration.of(DEV, first_count=8, further_count=4, lost_points_limit=0.3)


def test_a_rule_is_compared_with_full_and_fixed_depths(fitted: FittedCalibration) -> None:
    """R@1 of each way is the whole rerank's less what it loses; both directions add up."""
    rows = {(row.direction, row.way): row for row in depth_rows(fitted.adaptive_depth, TEST)}

    assert {way for _, way in rows} == {
        *("always 20", "the rule", "always 8", "always 12", "always 16")
    }
    whole, rule = rows[BOTH, "always 20"], rows[BOTH, "the rule"]
    assert whole.outcome.saved_percent == whole.outcome.lost_points == 0
    assert rule.outcome.saved_percent > 20
    whole_r1, rule_r1 = whole.recalls[0], rule.recalls[0]
    assert whole_r1.percent - rule_r1.percent == pytest.approx(rule.outcome.lost_points)
    parts = [rows[name, "the rule"].outcome for name in TEST]
    assert rule.outcome.pair_count == sum(each.pair_count for each in parts)
    assert rule.outcome.query_count == 8_000
