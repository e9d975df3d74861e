"""Which entries of the watch run's lists of what is rightly missing are needed."""

import pytest

from benchmarks.runs.watching import contract
from benchmarks.runs.watching.contract import idle_excuses, missing_names, unexcused

PANEL, OTHER = "index: Shards: {{shard}}", "index: Size: bytes"


def test_an_excuse_is_idle_once_its_expression_has_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """An excused expression that is still empty is neither reported nor idle."""
    monkeypatch.setattr(contract, "EMPTY_EXPRESSIONS", {PANEL: "no shard is lost in the run"})

    assert unexcused([PANEL, OTHER]) == [OTHER]
    assert idle_excuses([], [PANEL, OTHER]) == []
    assert idle_excuses([], [OTHER]) == [PANEL]


def test_an_excuse_is_idle_once_its_metric_is_scraped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "UNSEEN_METRICS", {"tandem_lost_total": "nothing is lost"})
    asked = {"docs/metrics.md": {"tandem_lost_total", "tandem_made_up_total"}}

    assert missing_names(asked, []) == ["tandem_made_up_total (docs/metrics.md)"]
    assert idle_excuses([], []) == []
    assert idle_excuses(["tandem_lost_total"], []) == ["tandem_lost_total"]
