"""benchmarks/bench/sibling_kinds.py: every pair of a family goes under the fact that parts it."""

from itertools import permutations

from benchmarks.bench.sibling_kinds import kind_of, preferred
from tandem.corpus.scenes.records import FAMILY_SIZE, scene_family
from tandem.corpus.scenes.scene import Layout
from tandem.evaluation.gallery import DIRECTIONS
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint

FAMILY_COUNT = 40


def test_each_family_has_its_kinds() -> None:
    """Of one group: two drawings by two counts. Of more: a scene, and three that part from it."""
    layouts = set()
    for number in range(FAMILY_COUNT):
        family = scene_family("test", 1, number)
        layout = family[0].layout
        layouts.add(layout)

        kinds = sorted(kind_of(scene, other) for scene, other in permutations(family, 2))

        if layout is Layout.SINGLE:
            apart = ["a count"] * 4 + ["a drawing"] * 4
            assert kinds == sorted(apart + ["more than one fact"] * 4)
        else:
            sides = "above and below" if layout is Layout.STACKED else "left and right"
            apart = ["a drawing", "counts swapped", sides] * 2
            assert kinds == sorted(apart + ["more than one fact"] * 6)
    assert layouts == set(Layout)


def test_the_shipped_checkpoint_is_tested_in_both_directions() -> None:
    """It tells nearly every pair; so neither an answer nor a logit is taken for another's."""
    told = list(preferred(load_checkpoint(default_checkpoint()), 8))

    assert len(told) == 8 * len(DIRECTIONS) * FAMILY_SIZE * (FAMILY_SIZE - 1)
    assert {each.language for each in told} == {"en", "de", "fr", "cs"}
    assert sum(each.by_ce for each in told) > 0.97 * len(told)
    assert sum(each.by_be for each in told) > 0.85 * len(told)
