"""Recall over drawn folds: by hand on a tiny gallery, and against the whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench.folds import Similarities, draws_of, joined, main, report
from tandem.evaluation.metrics import RECALL_AT
from tandem.neighbours.neighbour_file import save_neighbours
from tests.support.neighbours.planted_corpus import planted_neighbours

SCORES = Similarities(
    np.array([[0.9, 0.2, 0.8], [0.1, 0.7, 0.8], [0.3, 0.6, 0.5]]), np.array([0, 1, 2])
)
"""Pictures 0 and 1 are each first among their captions' pictures; caption 2 prefers others."""


def test_recall_is_among_the_fold_alone() -> None:
    """Caption 2 ties between pictures 0 and 1 and prefers both to 2; without them it is right."""
    both = SCORES.recalls(np.array([0, 1]))
    alone = SCORES.recalls(np.array([2]))
    whole = SCORES.recalls(np.arange(3))

    assert both == (100.0,) * 6
    assert alone == (100.0,) * 6
    # Picture 0 finds caption 0; pictures 1 and 2 find captions 2 and 1. Captions 0 and 1 find
    # their pictures, caption 2 has its own third.
    assert whole == pytest.approx((100 / 3, 100, 100, 200 / 3, 100, 100))


def test_an_equal_item_counts_as_above() -> None:
    constant = Similarities(np.ones((12, 12)), np.arange(12))

    assert constant.recalls(np.arange(12)) == (0.0,) * 6


def test_every_picture_is_in_one_fold() -> None:
    """One fold is the whole gallery in any order; with two, each is smaller and so easier."""
    gallery = joined([planted_neighbours(1), planted_neighbours(2)])

    [of_one] = draws_of(gallery, 1, 1, seed=3)
    of_two = list(draws_of(gallery, 2, 4, seed=3))

    whole = gallery.recalls(np.arange(80))
    assert of_one.first == of_one.mean == pytest.approx(whole)
    assert all(sum(each.mean) > sum(whole) for each in of_two)
    assert len({each.mean for each in of_two}) > 1
    with pytest.raises(ValueError, match="80 pictures do not divide into 3 folds"):
        next(draws_of(gallery, 3, 1, seed=1))


def test_the_table_has_mean_and_spread() -> None:
    gallery = joined([planted_neighbours(1)])
    draws = list(draws_of(gallery, 2, 3, seed=1))

    head, _, whole, part, mean = report(gallery, draws, 2)

    assert head.count("R@") == 2 * len(RECALL_AT)
    assert whole.startswith("| all 40 pictures | ")
    assert part.startswith("| one part of 20 | ")
    values = [each.mean[0] for each in draws]
    assert f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" in mean.split(" | ")[1]


def test_parts_of_two_models_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As no recall of both together is of any model; parts of one are measured."""
    save_neighbours(tmp_path / "a", planted_neighbours(1))
    save_neighbours(tmp_path / "b", planted_neighbours(2))
    other = replace(planted_neighbours(2).source, model_fingerprint="6" * 64)
    save_neighbours(tmp_path / "c", replace(planted_neighbours(2), source=other))
    words = ["folds", str(tmp_path / "a"), "--folds", "4", "--draws", "2"]

    monkeypatch.setattr("sys.argv", [*words[:2], str(tmp_path / "b"), *words[2:]])
    main()
    monkeypatch.setattr("sys.argv", [*words[:2], str(tmp_path / "c"), *words[2:]])
    with pytest.raises(ValueError, match="build both with one model"):
        main()

    assert "| mean of 4 folds of 20 | " in capsys.readouterr().out
