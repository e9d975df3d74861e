"""Generates scenes: pictures of counted drawings in an arrangement, in families of look-alikes.

A family is four scenes of the same drawings that differ in one fact each: two counts swapped, two
sides swapped, or one drawing exchanged for another. An embedding that knows which objects are in a
picture finds the family; only reading caption and picture together finds the member.

Scene `n` of a split is a pure function of (seed, split, n), so a corpus of any size costs nothing
until it is drawn.
"""

import random
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Literal, get_args

from tandem.contract.filtering.attributes import Attributes
from tandem.corpus.emoji import HELD_OUT_STYLE, open_drawings
from tandem.corpus.records import Caption, Record
from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import ScenePng
from tandem.corpus.scenes.nouns import LANGUAGES, MAX_COUNT, Noun, nouns_of
from tandem.corpus.scenes.scene import Group, Layout, Scene

Split = Literal["train", "val", "test", "test_style", "test_concepts"]
SPLITS: tuple[Split, ...] = get_args(Split)
FAMILY_SIZE = 4

# One pair of nouns in five never occurs together in train; val and test consist of these pairs.
_HELD_OUT_PAIR_MODULUS = 5


def scene_families(split: Split, seed: int, start: int = 0) -> Iterator[tuple[Scene, ...]]:
    """Yields families endlessly, beginning with number `start`."""
    number = start
    while True:
        yield scene_family(split, seed, number)
        number += 1


def scene_family(split: Split, seed: int, number: int) -> tuple[Scene, ...]:
    """Returns the FAMILY_SIZE scenes of one family, shuffled."""
    if split not in SPLITS:
        raise ValueError(f"no split {split!r} of scenes; there are {', '.join(SPLITS)}")
    rng = random.Random(f"scenes/{seed}/{split}/{number}")
    members = _members(_Casting(split, rng), rng)
    rng.shuffle(members)
    return tuple(replace(member, place_seed=rng.getrandbits(32)) for member in members)


def scene_records(split: Split, seed: int, count: int) -> Iterator[Record]:
    """Returns an iterator over `count` scenes with their captions, family after family.

    Raises ValueError, before it is iterated, unless `count` is a positive multiple of FAMILY_SIZE:
    half a family would make the gallery easier than it claims to be.
    """
    if count <= 0 or count % FAMILY_SIZE:
        raise ValueError(
            f"count is {count}; whole families need a positive multiple of {FAMILY_SIZE}"
        )
    return (
        _record(scene, split, f"scenes-{split}-{number:06d}", sibling)
        for number in range(count // FAMILY_SIZE)
        for sibling, scene in enumerate(scene_family(split, seed, number))
    )


def is_held_out_pair(first: Noun, second: Noun) -> bool:
    """Returns whether train never shows these two nouns in one picture."""
    key = "+".join(sorted((first.codepoints, second.codepoints)))
    return blake2b(key.encode(), digest_size=4).digest()[0] % _HELD_OUT_PAIR_MODULUS == 0


def _record(scene: Scene, split: Split, family: str, sibling: int) -> Record:
    record_id = f"{family}-{sibling}"
    captions = tuple(
        Caption(f"{record_id}-{language}-{number}", text, language)
        for language in LANGUAGES
        for number, text in enumerate(captions_of(scene, language))
    )
    attributes: Attributes = {
        "style": tuple(sorted({group.style for group in scene.groups})),
        "layout": scene.layout.name.lower(),
        "drawing_count": sum(group.count for group in scene.groups),
    }
    return Record(record_id, captions, split, family, ScenePng(scene), attributes)


class _Casting:
    """Draws nouns and styles that the split allows."""

    def __init__(self, split: Split, rng: random.Random) -> None:
        self._pair_held_out = split != "train" and split != "test_concepts"
        self._nouns = nouns_of("held_out" if split == "test_concepts" else "train")
        self._style = HELD_OUT_STYLE if split == "test_style" else None
        self._checks_pairs = split != "test_concepts"
        self._rng = rng

    def group(self, others: tuple[Noun, ...], not_noun: Noun | None = None) -> Group:
        """Returns a group of one drawing whose noun may occur in a picture with `others`.

        In train no pair with `others` is held out; elsewhere the pair with the first of them is.
        """
        noun = self._rng.choice(self._nouns)
        while noun in others or noun == not_noun or not self._may_stand(noun, others):
            noun = self._rng.choice(self._nouns)
        return Group(noun, self._style or self._rng.choice(_train_styles(noun)), 1)

    def _may_stand(self, noun: Noun, others: tuple[Noun, ...]) -> bool:
        if not self._checks_pairs or not others:
            return True
        if self._pair_held_out:
            return is_held_out_pair(noun, others[0])
        return not any(is_held_out_pair(noun, other) for other in others)


def _train_styles(noun: Noun) -> tuple[str, ...]:
    drawings = open_drawings()
    return tuple(
        style
        for style in drawings.styles
        if style != HELD_OUT_STYLE and drawings.has(noun.codepoints, style)
    )


def _members(casting: _Casting, rng: random.Random) -> list[Scene]:
    group_count = rng.choices((1, 2, 3), weights=(15, 55, 30))[0]
    few, many = rng.sample(range(1, MAX_COUNT + 1), 2)
    first = replace(casting.group(()), count=few)
    if group_count == 1:
        other = casting.group((), not_noun=first.noun)
        return [
            Scene(Layout.SINGLE, (replace(group, count=count),), 0)
            for group in (first, other)
            for count in (few, many)
        ]
    second = replace(casting.group((first.noun,)), count=many)
    if group_count == 2:
        layout = rng.choice((Layout.SIDE_BY_SIDE, Layout.STACKED))
        rest: tuple[Group, ...] = ()
        exchanged = replace(casting.group((first.noun,), not_noun=second.noun), count=many)
        exchange: tuple[Group, ...] = (first, exchanged)
    else:
        layout = rng.choice((Layout.TWO_ABOVE_ONE, Layout.TWO_BELOW_ONE))
        nouns = (first.noun, second.noun)
        third_count = rng.randint(1, MAX_COUNT)
        rest = (replace(casting.group(nouns), count=third_count),)
        exchange = (first, second, replace(casting.group(nouns, rest[0].noun), count=third_count))
    return [
        Scene(layout, (first, second, *rest), 0),
        Scene(layout, (replace(first, count=many), replace(second, count=few), *rest), 0),
        Scene(layout, (second, first, *rest), 0),
        Scene(layout, exchange, 0),
    ]
