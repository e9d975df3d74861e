"""How a search's time is divided, worked by hand."""

import time

import pytest

from tandem.contract.deadline import Deadline
from tandem.search.settings import SEARCH_DEFAULTS
from tandem.search.time_budget import TimeBudget


@pytest.mark.parametrize(
    ("whole", "encode", "rerank"),
    [(10.0, 7.0, 9.0), (0.1, 0.07, 0.08), (0.04, 0.028, 0.03)],
)
def test_time_is_divided_by_shares(whole: float, encode: float, rerank: float) -> None:
    """The reserve is a tenth, of a short time 20 ms, of a very short one a quarter."""
    now = time.monotonic()

    budget = TimeBudget.until(Deadline(now + whole), SEARCH_DEFAULTS)

    lag = time.monotonic() - now
    assert budget.end == Deadline(now + whole)
    assert budget.encode_end.end_time - now == pytest.approx(encode, abs=lag + 1e-6)
    assert budget.rerank_end.end_time - now == pytest.approx(rerank, abs=lag + 1e-6)
    assert budget.retrieval_end == budget.rerank_end
    leaving = TimeBudget.until(Deadline(now + whole), SEARCH_DEFAULTS, 0.25)
    lag = time.monotonic() - now
    left_to_stages = leaving.stages_end.end_time - leaving.rerank_end.end_time
    assert left_to_stages == pytest.approx(whole / 4, abs=lag / 4 + 1e-6)
