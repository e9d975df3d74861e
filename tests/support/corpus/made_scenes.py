"""Scenes put together by hand or drawn by hypothesis, for the tests of what is made of them."""

import random

from hypothesis import strategies as st

from tandem.corpus.scenes.nouns import MAX_COUNT, Noun, load_nouns
from tandem.corpus.scenes.records import SPLITS, scene_family
from tandem.corpus.scenes.scene import Group, Layout, Scene


def noun_named(name: str) -> Noun:
    """Returns the noun of that English name."""
    [noun] = [noun for noun in load_nouns() if noun.names["en"].one == name]
    return noun


def made_scene(layout: Layout, *counted: tuple[int, str], place_seed: int = 7) -> Scene:
    """Returns a scene of (count, English name) groups, all in one style."""
    groups = tuple(Group(noun_named(name), "noto", count) for count, name in counted)
    return Scene(layout, groups, place_seed)


def drawn_scenes() -> st.SearchStrategy[Scene]:
    """Yields scenes of every split as the corpus makes them."""
    return st.builds(
        lambda split, seed, number, sibling: scene_family(split, seed, number)[sibling],
        st.sampled_from(SPLITS),
        st.integers(0, 3),
        st.integers(0, 10_000),
        st.integers(0, 3),
    )


def any_scenes() -> st.SearchStrategy[Scene]:
    """Yields every arrangement there can be, whether or not a family holds it."""

    def build(layout: Layout, seed: int) -> Scene:
        rng = random.Random(seed)
        nouns = rng.sample(load_nouns(), len(layout.value))
        groups = tuple(Group(noun, "noto", rng.randint(1, MAX_COUNT)) for noun in nouns)
        return Scene(layout, groups, seed)

    return st.builds(build, st.sampled_from(Layout), st.integers(0, 2**32))
