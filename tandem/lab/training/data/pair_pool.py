"""Draws batches of texts and images for every objective, from captioned pictures of any kind.

Shapes: N pictures, B rows.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from tandem.lab.training.data.batches import (
    ImageTextBatch,
    MatchBatch,
    PairBatch,
    Splitter,
    TextBatch,
    tokenize,
)
from tandem.lab.training.data.caption_groups import caption_groups
from tandem.lab.training.data.mined_negatives import MinedNegatives
from tandem.lab.training.data.pooled_images import PooledImages


class PairSource(Protocol):
    """Numbers captioned pictures from 0 to N - 1."""

    @property
    def families(self) -> Sequence[Sequence[int]]:
        """The numbers of each family's pictures; every picture is in one family."""
        ...

    @property
    def siblings_mismatch(self) -> bool:
        """Whether a caption is false of its picture's siblings, or else may be true of them.

        Where it is false, siblings are drawn together and serve as mismatches; where it may be
        true, they are never negatives of each other.
        """
        ...

    def captions(self, number: int) -> Sequence[str]: ...

    def caption(self, number: int, rng: random.Random) -> str: ...


def check_family_count(source: PairSource, counts: Mapping[str, int]) -> None:
    """Raises ValueError where the source has fewer families than a batch takes.

    `counts` are by the field of a recipe that sets each, which the message names.
    """
    there = len(source.families)
    too_many = [name for name, count in counts.items() if count > there]
    if not too_many:
        return
    smaller = " ".join(f"--set {name}={there}" for name in too_many)
    or_smaller = f", or take smaller batches: {smaller}" if there > 1 else ""
    raise ValueError(
        f"a batch takes {max(counts.values())} families and the corpus has {there}; give pictures "
        f"of more families{or_smaller}"
    )


def draw_families(source: PairSource, rng: random.Random, count: int) -> list[int]:
    check_family_count(source, {"be_batch_size": count})
    return rng.sample(range(len(source.families)), count)


def draw_member(source: PairSource, family: int, rng: random.Random) -> int:
    members = source.families[family]
    return members[rng.randrange(len(members))]


class PairPool:
    """Draws batches from a source's pictures and their image tokens.

    Every draw follows from the generator that is passed in.
    """

    def __init__(
        self,
        source: PairSource,
        images: PooledImages,
        tokenizer: Splitter,
        max_text_tokens: int,
        view_count: int = 1,
    ) -> None:
        """Batches raise CaptionTooLong for a caption over `max_text_tokens`.

        With several views, `images` has view v of picture n under n + N * v, and match_batch draws
        one of them.
        """
        self._view_count = view_count
        self._source = source
        self._images = images
        self._tokenizer, self._max_text_tokens = tokenizer, max_text_tokens
        self._place = {
            number: (family, place)
            for family, members in enumerate(source.families)
            for place, number in enumerate(members)
        }

    def __len__(self) -> int:
        return len(self._place)

    def match_batch(self, rng: random.Random, size: int) -> MatchBatch:
        """Returns one caption and one image of each of `size` families, matching row by row.

        The groups are the families. Records of two families share no caption, but scenes may,
        mostly those with a single kind of drawing: in 9 % of batches of 64 from the default's pool
        some caption is also true of another row's picture (seeds 1 and 2, 5,000 batches each).
        """
        drawn = draw_families(self._source, rng, size)
        numbers = [draw_member(self._source, family, rng) for family in drawn]
        groups_B = torch.tensor(drawn)
        texts = self._texts(numbers, rng)
        return MatchBatch(texts, *self._images.of(self._viewed(numbers, rng)), groups_B)

    def pair_batch(
        self,
        rng: random.Random,
        family_count: int,
        sibling_negative_share: float,
        mined: MinedNegatives | None = None,
        mined_negative_share: float = 0.0,
    ) -> PairBatch:
        """Returns a match and a mismatch for each picture drawn from `family_count` families.

        Draws the whole family where siblings mismatch, else one picture. A mismatch keeps the
        caption or the image with equal probability and takes the other side from a sibling, with
        probability `sibling_negative_share`, or from another family: half by image and half by
        caption, as in the code of Geigle et al. 2022. With `mined`, the other side is a mined
        negative with probability `mined_negative_share`.
        """
        if sibling_negative_share and not self._source.siblings_mismatch:
            raise ValueError("siblings share captions here, so sibling_negative_share must be 0")
        drawn = draw_families(self._source, rng, family_count)
        own = (
            [number for family in drawn for number in self._source.families[family]]
            if self._source.siblings_mismatch
            else [draw_member(self._source, family, rng) for family in drawn]
        )
        text_numbers, image_numbers = list(own), list(own)
        for number in own:
            other = self._other(number, own, rng, sibling_negative_share)
            keeps_image = rng.random() < 0.5
            if mined and rng.random() < mined_negative_share:
                wrong = mined.texts_of_image if keeps_image else mined.images_of_text
                [other] = wrong.draw(number, 1, rng)
            text_numbers.append(other if keeps_image else number)
            image_numbers.append(number if keeps_image else other)
        matches = torch.cat([torch.ones(len(own)), torch.zeros(len(own))])
        return PairBatch(self._texts(text_numbers, rng), *self._images.of(image_numbers), matches)

    def triplet_batch(
        self, rng: random.Random, size: int, negative_count: int, mined: MinedNegatives
    ) -> ImageTextBatch:
        """Returns pairs of `size` families, each before that many mined wrong texts and images."""
        text_numbers, image_numbers = [], []
        for family in draw_families(self._source, rng, size):
            number = draw_member(self._source, family, rng)
            wrong_texts = mined.texts_of_image.draw(number, negative_count, rng)
            wrong_images = mined.images_of_text.draw(number, negative_count, rng)
            text_numbers += [number, *wrong_texts]
            image_numbers += [number, *wrong_images]
        return ImageTextBatch(self._texts(text_numbers, rng), *self._images.of(image_numbers))

    def neighbour_batch(self, rng: random.Random, size: int, neighbours_NK: Tensor) -> MatchBatch:
        """Returns `size` pictures with a caption each, drawn in groups of similar captions.

        A group is a picture and its K neighbours, by number; with K = 0 all are drawn at random.
        """
        drawn: dict[int, None] = {}
        while len(drawn) < size:
            number = rng.randrange(len(self))
            drawn.update(dict.fromkeys([number, *neighbours_NK[number].tolist()]))
        numbers = [*drawn][:size]
        texts = self._texts(numbers, rng)
        groups_B = torch.tensor([self._place[number][0] for number in numbers])
        return MatchBatch(texts, *self._images.of(self._viewed(numbers, rng)), groups_B)

    def captions_in_order(self, rng: random.Random, size: int) -> Iterator[TextBatch]:
        """Yields one caption of every picture, in order of number, `size` at a time."""
        for start in range(0, len(self), size):
            yield self._texts(range(start, min(start + size, len(self))), rng)

    def in_order(self, rng: random.Random, size: int) -> Iterator[ImageTextBatch]:
        """Yields every picture with one caption, in order of number, `size` at a time."""
        for start in range(0, len(self), size):
            numbers = range(start, min(start + size, len(self)))
            yield ImageTextBatch(self._texts(numbers, rng), *self._images.of(numbers))

    def groups(self) -> Tensor:
        """Returns int64 [N], equal where one picture's caption may be true of the other.

        That holds for two pictures that share a caption, and within a family whose siblings do not
        mismatch.
        """
        joined = [] if self._source.siblings_mismatch else self._source.families
        captions = [self._source.captions(number) for number in range(len(self))]
        return torch.tensor(caption_groups(captions, joined))

    def _viewed(self, numbers: Sequence[int], rng: random.Random) -> Sequence[int]:
        if self._view_count == 1:
            return numbers
        return [number + len(self) * rng.randrange(self._view_count) for number in numbers]

    def _other(
        self, number: int, drawn: Sequence[int], rng: random.Random, sibling_share: float
    ) -> int:
        family, place = self._place[number]
        if rng.random() < sibling_share:
            members = self._source.families[family]
            return members[(place + rng.randint(1, len(members) - 1)) % len(members)]
        other = rng.choice(drawn)
        while self._place[other][0] == family:
            other = rng.choice(drawn)
        return other

    def _texts(self, numbers: Sequence[int], rng: random.Random) -> TextBatch:
        texts = [self._source.caption(number, rng) for number in numbers]
        return tokenize(self._tokenizer, texts, self._max_text_tokens)
