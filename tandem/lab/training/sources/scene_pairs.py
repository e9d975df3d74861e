"""Draws scenes for training: labelled pixels for the backbone, pairs for the encoder.

The backbone first learns which drawing's centre lies under each image token. That replaces the
object detectors of OSCAR and UNITER, whose region features the paper takes as given: tokens say
what is where before any text is read.

Shapes: B rows, H W pixels, R image tokens.
"""

import multiprocessing
import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import place_drawings, scene_pixels
from tandem.corpus.scenes.nouns import LANGUAGES, nouns_of
from tandem.corpus.scenes.records import FAMILY_SIZE, Split, scene_families
from tandem.corpus.scenes.scene import Scene
from tandem.modeling.config import TOKEN_SIZE

# Most queries of the demo are in English.
_LANGUAGE_WEIGHTS = (2, 1, 1, 1)


def labelled_pixels(
    seed: int, batch_size: int, batch_count: int, image_size: int, start: int = 0
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields uint8 [B, H, W, 3] with int64 [B, R]: scenes, and the drawing under each token.

    Yields batches `start` to `batch_count` - 1.
    """
    drawn = _DrawnScenes("train", seed, start * batch_size, batch_count * batch_size, image_size)
    # A fork of a process with gRPC threads, such as one with an Engine, may wait for ever.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])  # imports torch once, not for each worker
    loader = DataLoader(
        drawn, batch_size, num_workers=1, prefetch_factor=4, multiprocessing_context=server
    )
    return iter(loader)


class _DrawnScenes(IterableDataset[tuple[NDArray[np.uint8], NDArray[np.int64]]]):
    def __init__(self, split: Split, seed: int, start: int, stop: int, image_size: int) -> None:
        self._split: Split = split
        self._seed, self._start, self._stop, self._image_size = seed, start, stop, image_size

    def __iter__(self) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
        scenes = chain.from_iterable(scene_families(self._split, self._seed))
        for scene in islice(scenes, self._start, self._stop):
            # A copy, because Pillow's buffer is read-only and torch warns about that.
            yield scene_pixels(scene).copy(), token_classes(scene, self._image_size)


def class_count() -> int:
    """Returns the number of classes: one for each noun of the training split, and 0 for none."""
    return len(nouns_of("train")) + 1


def token_classes(scene: Scene, image_size: int) -> NDArray[np.int64]:
    """Returns int64 [R]: for each token the class of the drawing centred there, or 0."""
    number_of = {noun.codepoints: n for n, noun in enumerate(nouns_of("train"), start=1)}
    side = image_size // TOKEN_SIZE
    classes = np.zeros((side, side), dtype=np.int64)
    for placed in place_drawings(scene):
        row = int(placed.y + placed.size / 2) // TOKEN_SIZE
        column = int(placed.x + placed.size / 2) // TOKEN_SIZE
        classes[row, column] = number_of[placed.group.noun.codepoints]
    return classes.reshape(-1)


class ScenePairs:
    """Treats a caption as false of the scene's siblings."""

    siblings_mismatch = True

    def __init__(self, families: Sequence[tuple[Scene, ...]]) -> None:
        self._scenes = [scene for family in families for scene in family]
        self.families: Sequence[range] = [
            range(start, start + FAMILY_SIZE) for start in range(0, len(self._scenes), FAMILY_SIZE)
        ]

    def captions(self, number: int) -> Sequence[str]:
        scene = self._scenes[number]
        return [text for language in LANGUAGES for text in captions_of(scene, language)]

    def caption(self, number: int, rng: random.Random) -> str:
        """Draws a language, then one of its captions."""
        language = rng.choices(LANGUAGES, _LANGUAGE_WEIGHTS)[0]
        return rng.choice(captions_of(self._scenes[number], language))
