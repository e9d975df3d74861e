"""Batches of scenes for the three objectives. Everything follows from a recipe's seed.

Shapes: B rows, H W pixels, T text tokens, R image tokens, D width.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tandem.corpus.nouns import LANGUAGES
from tandem.corpus.scene import Scene
from tandem.corpus.scene_captions import captions_of
from tandem.corpus.scene_drawing import scene_pixels
from tandem.corpus.scenes import FAMILY_SIZE, Split, scene_families
from tandem.model_io.buckets import pad_texts
from tandem.model_io.special_tokens import special_tokens
from tandem.training.scene_labels import token_classes

# English is what most queries of the demo are in.
_LANGUAGE_WEIGHTS = (2, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Padded texts: int64 [B, T] each."""

    ids: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Texts beside images; `matches` float [B] is 1 where they belong together."""

    texts: TextBatch
    tokens: Tensor
    matches: Tensor


def tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> TextBatch:
    """Returns the texts padded to the longest of them, with the tokenizer's own padding."""
    encoded = [
        np.asarray(encoding.ids, np.int32) for encoding in tokenizer.encode_batch(list(texts))
    ]
    ids, mask = pad_texts(encoded, max(map(len, encoded)), special_tokens(tokenizer).pad_id)
    return TextBatch(torch.from_numpy(ids), torch.from_numpy(mask))


def labelled_pixels(
    seed: int, batch_size: int, batch_count: int, image_size: int, start: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields uint8 [B, H, W, 3] with int64 [B, R]: scenes and the drawing under each token.

    `start` is the number of the first batch of the `batch_count` there are.
    """
    drawn = _DrawnScenes("train", seed, start * batch_size, batch_count * batch_size, image_size)
    return iter(DataLoader(drawn, batch_size=batch_size, num_workers=1, prefetch_factor=4))


class _DrawnScenes(IterableDataset[tuple[NDArray[np.uint8], NDArray[np.int64]]]):
    """Scenes drawn in a process beside the training."""

    def __init__(self, split: Split, seed: int, start: int, stop: int, image_size: int) -> None:
        self._split: Split = split
        self._seed, self._start, self._stop, self._image_size = seed, start, stop, image_size

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        scenes = chain.from_iterable(scene_families(self._split, self._seed))
        for scene in islice(scenes, self._start, self._stop):
            # A copy: Pillow's own buffer is read-only, and torch warns of that.
            yield scene_pixels(scene).copy(), token_classes(scene, self._image_size)


class ScenePool:
    """Families with their image tokens, float16 [N, R, D], from which rounds are drawn."""

    def __init__(
        self, families: Sequence[tuple[Scene, ...]], tokens_NRD: Tensor, tokenizer: Tokenizer
    ) -> None:
        self._families = families
        self._tokens_NRD = tokens_NRD
        self._tokenizer = tokenizer

    def be_batch(self, rng: random.Random, size: int) -> tuple[TextBatch, Tensor]:
        """Returns one caption and one image of each of `size` families, matching row by row."""
        numbers = [
            family * FAMILY_SIZE + rng.randrange(FAMILY_SIZE)
            for family in rng.sample(range(len(self._families)), size)
        ]
        return self._texts(numbers, rng), self._tokens_NRD[numbers]

    def ce_batch(
        self, rng: random.Random, family_count: int, sibling_negative_share: float
    ) -> PairBatch:
        """Returns a match and a mismatch for each scene of `family_count` families.

        A mismatch keeps the caption or the image by equal chance and takes the other side from a
        sibling, with the given probability, or from a scene of another family (methods: 1:1
        negatives, half by image, half by caption). Raises ValueError for a single family, which has
        no other to take a scene from.
        """
        if family_count < 2:
            raise ValueError(f"family_count is {family_count}; mismatches need at least 2 families")
        drawn = rng.sample(range(len(self._families)), family_count)
        own = [family * FAMILY_SIZE + k for family in drawn for k in range(FAMILY_SIZE)]
        text_numbers, image_numbers = list(own), list(own)
        for number in own:
            other = _other_scene(number, own, rng, sibling_negative_share)
            keeps_image = rng.random() < 0.5
            text_numbers.append(other if keeps_image else number)
            image_numbers.append(number if keeps_image else other)
        matches = torch.cat([torch.ones(len(own)), torch.zeros(len(own))])
        return PairBatch(self._texts(text_numbers, rng), self._tokens_NRD[image_numbers], matches)

    def _scene(self, number: int) -> Scene:
        return self._families[number // FAMILY_SIZE][number % FAMILY_SIZE]

    def _texts(self, numbers: Sequence[int], rng: random.Random) -> TextBatch:
        return tokenize(self._tokenizer, [self._caption(number, rng) for number in numbers])

    def _caption(self, number: int, rng: random.Random) -> str:
        scene = self._scene(number)
        language = rng.choices(LANGUAGES, _LANGUAGE_WEIGHTS)[0]
        return rng.choice(captions_of(scene, language))


def _other_scene(
    number: int, drawn: Sequence[int], rng: random.Random, sibling_share: float
) -> int:
    family = number // FAMILY_SIZE
    if rng.random() < sibling_share:
        return family * FAMILY_SIZE + (number + rng.randint(1, FAMILY_SIZE - 1)) % FAMILY_SIZE
    other = rng.choice(drawn)
    while other // FAMILY_SIZE == family:
        other = rng.choice(drawn)
    return other
