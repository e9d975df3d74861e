"""Methods without labels by name: settings chosen on dev, and never on test."""

import numpy as np
import pytest

from tandem.lab.evaluation.metrics import RECALL_AT, recall_at
from tandem.lab.neighbours.baselines.label_free import (
    METHODS,
    SearchSide,
    Setting,
    search_sides,
    tuned,
)
from tandem.lab.neighbours.lists.corpus_neighbours import with_pools
from tests.support.neighbours.planted_corpus import planted_neighbours

DEV = planted_neighbours(seed=1, image_count=24, depth=20)


def _recall_sum(sides: tuple[SearchSide, SearchSide], setting: Setting) -> float:
    return sum(
        recall_at(side.ranks_of(setting.order_of(side)), k).percent
        for side in sides
        for k in RECALL_AT
    )


def test_sides_know_their_answers() -> None:
    by_image, by_text = search_sides(DEV)

    assert by_image.base.shape == (24, 48)
    assert sorted(len(each) for each in by_image.answers) == [2] * 24
    for text, [image] in enumerate(by_text.answers):
        assert text in by_image.answers[image]
    assert by_text.ranks == by_text.ranks_of(np.argsort(-by_text.base, axis=1, kind="stable"))


@pytest.mark.parametrize("method", ["aqe", "alpha-dba-qe-joint", "dfs", "fsr", "krnn-similar"])
def test_the_best_on_dev_is_chosen(method: str) -> None:
    """No setting of the grid that fits is better on dev."""
    sides = search_sides(DEV)

    chosen = tuned(method, DEV)

    best = _recall_sum(sides, chosen)
    others = [each for each in METHODS[method]() if each.neighbour_count < 24]
    assert all(_recall_sum(sides, each) <= best for each in others)
    assert chosen.text in [each.text for each in others]


def test_settings_that_need_more_than_dev_has_are_left_out() -> None:
    small = planted_neighbours(seed=1, image_count=8, depth=4)

    assert tuned("krnn", small).text == "k 5"
    with pytest.raises(ValueError, match="dev has 8 items, too few for any setting of dfs"):
        tuned("dfs", small)


def test_inapplicable_settings_are_named() -> None:
    pooled = with_pools(DEV, {}, np.zeros((24, 2)), np.zeros((48, 2)))

    with pytest.raises(ValueError, match="no method 'knn'; there are aqe"):
        tuned("knn", DEV)
    with pytest.raises(ValueError, match=r"expands embeddings, which BE \+ CE 2 does not"):
        tuned("aqe", pooled)
    assert tuned("krnn", pooled).text
