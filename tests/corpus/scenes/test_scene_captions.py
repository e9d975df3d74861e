"""Captions: every sentence of a scene says all of it, and says it truly."""

import re

import pytest
from hypothesis import given

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.nouns import LANGUAGES, MAX_COUNT, Language, load_nouns
from tandem.corpus.scenes.scene import Layout, Scene
from tests.support.corpus.made_scenes import any_scenes, made_scene

# (codepoints, count) by the phrase that says it: unlike for any two, or captions would be unclear.
COUNTED = {
    noun.counted(count, "en"): (noun.codepoints, count)
    for noun in load_nouns()
    for count in range(1, MAX_COUNT + 1)
}

# A scene as a sentence tells it: what stands where.
Facts = dict[str, tuple[str, int]]


@given(any_scenes())
def test_every_english_sentence_tells_the_scene(scene: Scene) -> None:
    """Read back by a grammar of its own, each sentence gives the groups, counts and places."""
    for caption in captions_of(scene, "en"):
        assert read_english(caption, scene.layout) == facts_of(scene), caption


@given(any_scenes())
def test_sentences_in_every_language_name_every_group(scene: Scene) -> None:
    """Three sentences in English, two in each other language, none twice, none without a group."""
    for language in LANGUAGES:
        captions = captions_of(scene, language)
        assert len(set(captions)) == len(captions) == (3 if language == "en" else 2)
        for caption in captions:
            for group in scene.groups:
                assert group.noun.counted(group.count, language) in caption


@pytest.mark.parametrize(
    ("scene", "language", "captions"),
    [
        (
            made_scene(Layout.SINGLE, (2, "dog")),
            "en",
            ("two dogs", "a picture of two dogs", "there are two dogs"),
        ),
        (made_scene(Layout.SINGLE, (3, "cow")), "fr", ("ce sont trois vaches", "trois vaches")),
        (made_scene(Layout.SINGLE, (2, "cat")), "cs", ("jsou tu dvě kočky", "dvě kočky")),
        (
            made_scene(Layout.SIDE_BY_SIDE, (2, "dog"), (1, "umbrella")),
            "de",
            (
                "links zwei Hunde, rechts ein Regenschirm",
                "rechts ein Regenschirm, links zwei Hunde",
            ),
        ),
        (
            made_scene(Layout.TWO_ABOVE_ONE, (2, "dog"), (1, "umbrella"), (3, "cat")),
            "en",
            (
                "two dogs left of one umbrella, with three cats below",
                "three cats below, one umbrella to the right of two dogs",
                "at the top left two dogs, at the top right one umbrella, at the bottom three cats",
            ),
        ),
        (
            made_scene(Layout.TWO_BELOW_ONE, (2, "dog"), (1, "umbrella"), (3, "cat")),
            "cs",
            (
                "vlevo dole dva psi, vpravo dole jeden deštník, nahoře tři kočky",
                "nahoře tři kočky, vpravo dole jeden deštník, vlevo dole dva psi",
            ),
        ),
    ],
)
def test_captions_read_as_written_by_hand(
    scene: Scene, language: Language, captions: tuple[str, ...]
) -> None:
    assert captions_of(scene, language) == captions


def facts_of(scene: Scene) -> Facts:
    """Returns what stands in which area."""
    return {
        area: (group.noun.codepoints, group.count)
        for area, group in zip(scene.layout.value, scene.groups, strict=True)
    }


def read_english(caption: str, layout: Layout) -> Facts:
    """Returns what a sentence tells; of a three-group scene the areas are named by `layout`."""
    if ", " in caption and "with" not in caption and "to the right of" not in caption:
        return dict(_placed(part) for part in caption.split(", "))
    if re.match(r"(on|at) the ", caption):
        return dict([_placed(caption)])
    for pattern, areas in _relations(layout):
        if found := re.fullmatch(pattern, caption):
            return {
                area: COUNTED[phrase] for area, phrase in zip(areas, found.groups(), strict=True)
            }
    return {"all": COUNTED[re.sub(r"^(a picture of|there is|there are) ", "", caption)]}


def _placed(part: str) -> tuple[str, tuple[str, int]]:
    found = re.fullmatch(
        r"(?:on|at) the (top left|top right|bottom left|bottom right|\w+) (.+)", part
    )
    assert found, part
    return found[1], COUNTED[found[2]]


def _relations(layout: Layout) -> list[tuple[str, tuple[str, ...]]]:
    if len(layout.value) == 3:
        left, right, other = layout.value
        word = {"bottom": "below", "top": "above"}[other]
        return [
            (rf"(.+) left of (.+), with (.+) {word}", (left, right, other)),
            (rf"(.+) {word}, (.+) to the right of (.+)", (other, right, left)),
        ]
    return [
        (r"(.+) left of (.+)", ("left", "right")),
        (r"(.+) to the right of (.+)", ("right", "left")),
        (r"(.+) above (.+)", ("top", "bottom")),
        (r"(.+) below (.+)", ("bottom", "top")),
    ]
