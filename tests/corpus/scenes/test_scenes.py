"""Scenes: families of look-alikes, and what each split may and may not show."""

from collections import Counter
from itertools import combinations, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.corpus.emoji import HELD_OUT_STYLE
from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.nouns import LANGUAGES, nouns_of
from tandem.corpus.scenes.records import (
    FAMILY_SIZE,
    SPLITS,
    Split,
    is_held_out_pair,
    scene_families,
    scene_family,
    scene_records,
)
from tandem.corpus.scenes.scene import Group, Scene

numbers = st.integers(0, 100_000)
splits = st.sampled_from(SPLITS)


@given(splits, st.integers(0, 2**32), numbers)
def test_a_family_differs_in_one_fact_each(split: Split, seed: int, number: int) -> None:
    """Some member is the original; the others have counts swapped, sides swapped, one exchanged."""
    family = scene_family(split, seed, number)

    assert len(family) == FAMILY_SIZE
    if len(family[0].groups) == 1:
        assert _is_grid(family)
    else:
        assert any(_is_original(family, k) for k in range(FAMILY_SIZE))


@given(splits, numbers)
def test_no_sentence_of_one_member_is_true_of_another(split: Split, number: int) -> None:
    """Siblings share no caption in any language, so a sibling's caption is always a mismatch."""
    family = scene_family(split, 1, number)

    for language in LANGUAGES:
        told = [captions_of(scene, language) for scene in family]
        assert len({text for captions in told for text in captions}) == sum(map(len, told))


@given(numbers)
def test_train_contains_nothing_held_out(number: int) -> None:
    for scene in scene_family("train", 1, number):
        nouns = [group.noun for group in scene.groups]
        assert {noun.role for noun in nouns} == {"train"}
        assert HELD_OUT_STYLE not in {group.style for group in scene.groups}
        assert not any(is_held_out_pair(*pair) for pair in combinations(nouns, 2))


@given(st.sampled_from(["val", "test", "test_style"]), numbers)
def test_test_scenes_of_several_groups_hold_a_held_out_pair(split: Split, number: int) -> None:
    """Each such picture asks for a combination that training never showed, of nouns it did."""
    for scene in scene_family(split, 1, number):
        nouns = [group.noun for group in scene.groups]
        assert {noun.role for noun in nouns} == {"train"}
        if len(nouns) > 1:
            assert any(is_held_out_pair(*pair) for pair in combinations(nouns, 2))


@given(numbers)
def test_test_style_is_all_in_the_held_out_style(number: int) -> None:
    for split in SPLITS:
        styles = {group.style for scene in scene_family(split, 1, number) for group in scene.groups}
        assert (styles == {HELD_OUT_STYLE}) is (split == "test_style")


@given(numbers)
def test_test_concepts_is_all_of_held_out_nouns(number: int) -> None:
    for scene in scene_family("test_concepts", 1, number):
        assert {group.noun.role for group in scene.groups} == {"held_out"}


@given(splits, st.integers(0, 2**32), numbers)
def test_a_scene_is_a_function_of_its_number(split: Split, seed: int, number: int) -> None:
    family = scene_family(split, seed, number)

    assert scene_family(split, seed, number) == family
    assert next(scene_families(split, seed, number)) == family
    assert scene_family(split, seed + 1, number) != family
    assert scene_family(split, seed, number + 1) != family


def test_group_counts_have_the_intended_shares() -> None:
    """15 % of families have one group, 55 % two, 30 % three; 2,000 of them to within 4 points."""
    counts = Counter(len(family[0].groups) for family in islice(scene_families("train", 1), 2_000))

    # Three standard deviations of the 55 % are 3 * sqrt(.55 * .45 / 2000) = 3.3 points.
    for group_count, share in {1: 0.15, 2: 0.55, 3: 0.30}.items():
        assert abs(counts[group_count] / 2_000 - share) < 0.04


def test_the_held_out_pairs_are_about_a_fifth_and_leave_every_noun_partners() -> None:
    """Held out is a pair whichever comes first, and each noun has some of both kinds."""
    nouns = nouns_of("train")
    shares = [
        sum(is_held_out_pair(noun, other) for other in nouns if other != noun) / (len(nouns) - 1)
        for noun in nouns
    ]

    assert all(is_held_out_pair(a, b) == is_held_out_pair(b, a) for a, b in combinations(nouns, 2))
    assert 0.05 < min(shares) < max(shares) < 0.40
    assert sum(shares) / len(shares) == pytest.approx(0.2, abs=0.02)


def test_a_gallery_of_half_families_is_refused() -> None:
    """It would be easier than it claims; at once, before a command says that it begins."""
    for count in (0, -4, 1, 6):
        with pytest.raises(ValueError, match="whole families"):
            scene_records("test", 1, count)


def test_an_unknown_split_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no split 'dev'.*train, val, test, test_style"):
        scene_family("dev", 1, 0)  # type: ignore[arg-type]


def test_records_have_unique_ids_and_all_captions() -> None:
    """Nine captions a scene, three of them English; families of four."""
    records = list(scene_records("test", 1, 40))

    assert len({record.record_id for record in records}) == 40
    caption_ids = [caption.caption_id for record in records for caption in record.captions]
    assert len(set(caption_ids)) == len(caption_ids) == 40 * 9
    assert set(Counter(record.family for record in records).values()) == {FAMILY_SIZE}
    for record in records:
        languages = Counter(caption.language for caption in record.captions)
        assert languages == {"en": 3, "de": 2, "fr": 2, "cs": 2}
        assert record.split == "test"


def _is_grid(family: tuple[Scene, ...]) -> bool:
    """Two drawings times two counts: each member has two siblings one fact away."""
    [groups] = zip(*(scene.groups for scene in family), strict=True)
    drawings = {(group.noun.codepoints, group.style) for group in groups}
    counts = {group.count for group in groups}
    pairs = {(group.noun.codepoints, group.count) for group in groups}
    nouns = {noun for noun, _ in pairs}
    return len(drawings) == len(nouns) == len(counts) == 2 and len(pairs) == FAMILY_SIZE


def _is_original(family: tuple[Scene, ...], k: int) -> bool:
    """Whether each sibling is family[k] with exactly one of the three changes."""
    original, siblings = family[k], [*family[:k], *family[k + 1 :]]
    if any(scene.layout is not original.layout for scene in family):
        return False
    return sorted(_change(original.groups, scene.groups) for scene in siblings) == [
        "counts swapped",
        "one exchanged",
        "sides swapped",
    ]


def _change(original: tuple[Group, ...], other: tuple[Group, ...]) -> str:
    first, second, *rest = original
    if other == (second, first, *rest):
        return "sides swapped"
    drawings = [(group.noun, group.style) for group in original]
    counts = [group.count for group in original]
    if drawings == [(group.noun, group.style) for group in other]:
        swapped = [second.count, first.count, *counts[2:]]
        is_swap = [group.count for group in other] == swapped and first.count != second.count
        return "counts swapped" if is_swap else "?"
    changed = [a for a, b in zip(original, other, strict=True) if a != b]
    is_exchange = (
        len(changed) == 1
        and counts == [group.count for group in other]
        and len({group.noun for group in (*original, *other)}) == len(original) + 1
    )
    return "one exchanged" if is_exchange else "?"
