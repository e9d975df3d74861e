"""Labels of image tokens: each drawing counts once, where its centre is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.scenes.drawing import place_drawings
from tandem.corpus.scenes.nouns import nouns_of
from tandem.corpus.scenes.records import scene_family
from tandem.corpus.scenes.scene import Layout
from tandem.lab.training.sources.scene_pairs import class_count, token_classes
from tests.support.corpus.made_scenes import made_scene


def test_a_drawing_is_named_where_its_centre_is() -> None:
    """One drawing of known place: the token is its centre's row and column of 16 pixels."""
    scene = made_scene(Layout.SINGLE, (1, "dog"))
    [placed] = place_drawings(scene)

    classes_77 = token_classes(scene, 112).reshape(7, 7)

    row, column = (placed.y + placed.size // 2) // 16, (placed.x + placed.size // 2) // 16
    number = next(n for n, noun in enumerate(nouns_of("train"), 1) if noun.codepoints == "1f415")
    assert classes_77[row, column] == number
    assert np.count_nonzero(classes_77) == 1


@given(st.integers(0, 10_000), st.integers(0, 3))
def test_no_two_drawings_share_a_token(number: int, sibling: int) -> None:
    """So each is labelled: drawings are at least 22 pixels apart, tokens 16 wide."""
    scene = scene_family("train", 1, number)[sibling]

    classes_R = token_classes(scene, 112)

    assert classes_R.dtype == np.int64
    assert classes_R.shape == (49,)
    assert np.count_nonzero(classes_R) == sum(group.count for group in scene.groups)
    assert classes_R.max() < class_count()
