"""Batches: matches match, mismatches do not, and the shares are those asked for.

Each scene's image tokens are its own number, so a batch tells which scenes it was made of; texts
are looked up in a table of every caption of the pool.
"""

import math
import multiprocessing
import os
import random
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.drawing import scene_pixels
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import FAMILY_SIZE, scene_families
from tandem.corpus.scenes.scene import Scene
from tandem.lab.training.data.batches import CaptionTooLong, PairBatch, TextBatch, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.data.mined_negatives import MinedNegatives, nearest_wrong
from tandem.lab.training.data.pair_pool import PairPool, check_family_count
from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.sources.scene_pairs import ScenePairs, labelled_pixels, token_classes
from tests.support.modeling.published_folders import xlm_r_tokenizer

FAMILY_COUNT = 60


class Pool:
    """A pool of scenes whose batches can be traced back to scene numbers."""

    def __init__(self) -> None:
        # Of two or three groups: two families of single drawings may say the same by chance.
        several = (each for each in scene_families("train", 1) if len(each[0].groups) > 1)
        families = list(islice(several, FAMILY_COUNT))
        self.scenes = [scene for family in families for scene in family]
        self.tokenizer = train_tokenizer(map(_say, self.scenes), 1500)
        numbers = torch.arange(len(self.scenes), dtype=torch.float16)
        self.pool = PairPool(
            ScenePairs(families), HeldImages(numbers[:, None, None]), self.tokenizer, 64
        )
        self._scene_of_ids = {
            tuple(self.tokenizer.encode(text).ids): (number, language)
            for number, scene in enumerate(self.scenes)
            for language in LANGUAGES
            for text in captions_of(scene, language)
        }

    def text_scenes(self, texts: TextBatch) -> list[int]:
        return [number for number, _ in self._told(texts)]

    def text_languages(self, texts: TextBatch) -> list[str]:
        return [language for _, language in self._told(texts)]

    def _told(self, texts: TextBatch) -> list[tuple[int, str]]:
        return [
            self._scene_of_ids[tuple(ids[mask.bool()].tolist())]
            for ids, mask in zip(texts.ids, texts.mask, strict=True)
        ]


@pytest.fixture(name="pool", scope="module")
def _pool() -> Pool:
    return Pool()


def image_scenes(tokens_BRD: Tensor) -> list[int]:
    return [int(number) for number in tokens_BRD[:, 0, 0]]


def families(numbers: list[int]) -> list[int]:
    return [number // FAMILY_SIZE for number in numbers]


def ce_batches(pool: Pool, sibling_share: float, count: int = 40) -> list[PairBatch]:
    """Returns batches of 8 families; 40 of them have 1,280 mismatches."""
    rng = random.Random(0)
    return [pool.pool.pair_batch(rng, 8, sibling_share) for _ in range(count)]


def test_a_first_token_of_id_0_counts() -> None:
    """XLM-R's texts begin with 0 and are padded with 1."""
    batch = tokenize(xlm_r_tokenizer(), ["two dogs", "cat"], 4)

    assert batch.ids.tolist() == [[0, 5, 6, 2], [0, 11, 2, 1]]
    assert batch.mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_a_caption_that_the_model_has_no_places_for_is_named() -> None:
    """The first such of a batch, [CLS] and [SEP] counted; one token fewer is taken."""
    texts = ["cat", "two dogs", "one umbrella cat"]

    with pytest.raises(CaptionTooLong, match="'two dogs' has 4 tokens, the limit is 3"):
        tokenize(xlm_r_tokenizer(), texts, 3)
    assert tokenize(xlm_r_tokenizer(), texts, 5).ids.shape == (3, 5)


def test_be_rows_match_and_are_of_different_families(pool: Pool) -> None:
    rng = random.Random(0)
    for _ in range(20):
        batch = pool.pool.match_batch(rng, 16)

        images = image_scenes(batch.tokens)
        assert pool.text_scenes(batch.texts) == images
        assert batch.groups.tolist() == families(images)
        assert len(set(families(images))) == 16


def test_be_batches_draw_every_member_and_language(pool: Pool) -> None:
    rng = random.Random(0)
    batches = [pool.pool.match_batch(rng, 50) for _ in range(40)]

    siblings = [n % FAMILY_SIZE for batch in batches for n in image_scenes(batch.tokens)]
    languages = [language for each in batches for language in pool.text_languages(each.texts)]

    for sibling in range(FAMILY_SIZE):
        _assert_share(siblings.count(sibling), len(siblings), 1 / 4)
    for language, share in zip(LANGUAGES, (2 / 5, 1 / 5, 1 / 5, 1 / 5), strict=True):
        _assert_share(languages.count(language), len(languages), share)


def test_ce_matches_match_and_mismatches_do_not(pool: Pool) -> None:
    for batch in ce_batches(pool, 0.5):
        texts, images = pool.text_scenes(batch.texts), image_scenes(batch.tokens)

        assert batch.matches.tolist() == [1.0] * 32 + [0.0] * 32
        assert texts[:32] == images[:32]
        assert all(text != image for text, image in zip(texts[32:], images[32:], strict=True))
        assert len(set(families(images[:32]))) == 8
        assert len(set(images[:32])) == 32


@pytest.mark.parametrize("share", [0.0, 0.7])
def test_the_share_of_sibling_mismatches_is_the_configured_one(pool: Pool, share: float) -> None:
    """Within four standard deviations of 1,280 draws, and exact at the ends."""
    is_sibling = [
        text // FAMILY_SIZE == image // FAMILY_SIZE for text, image in _mismatches(pool, share)
    ]

    _assert_share(sum(is_sibling), len(is_sibling), share)


def test_half_of_the_mismatches_keep_the_image(pool: Pool) -> None:
    """The others keep the caption; each scene drawn is on one side of its mismatch."""
    kept_image = 0
    for batch in ce_batches(pool, 0.5):
        own = image_scenes(batch.tokens)[:32]
        texts, images = pool.text_scenes(batch.texts)[32:], image_scenes(batch.tokens)[32:]
        for number, text, image in zip(own, texts, images, strict=True):
            assert (number == text) is not (number == image)
            kept_image += number == image

    _assert_share(kept_image, 40 * 32, 0.5)


def test_the_same_seed_draws_the_same_batches(pool: Pool) -> None:
    def drawn(seed: int) -> list[object]:
        rng = random.Random(seed)
        be = pool.pool.match_batch(rng, 8)
        ce = pool.pool.pair_batch(rng, 4, 0.7)
        tensors = (be.texts.ids, be.tokens, ce.texts.ids, ce.tokens)
        return [tensor.tolist() for tensor in tensors]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def mined_at_random(pool: Pool, seed: int = 3) -> MinedNegatives:
    """Returns negatives of random embeddings: five a picture, another list in each direction."""
    generator = torch.Generator().manual_seed(seed)
    texts, images = (
        F.normalize(torch.randn(len(pool.scenes), 8, generator=generator), dim=-1) for _ in range(2)
    )
    return nearest_wrong(texts, images, pool.pool.groups(), 5)


def test_each_batch_that_is_too_large_is_named() -> None:
    four, one = (ScenePairs(list(islice(scene_families("train", 1), count))) for count in (4, 1))
    counts = {"be_batch_size": 4, "matcher_batch_size": 5, "mlm_batch_size": 9}
    smaller = "or take smaller batches: --set matcher_batch_size=4 --set mlm_batch_size=4$"

    with pytest.raises(ValueError, match=f"takes 9 families and the corpus has 4; .*, {smaller}"):
        check_family_count(four, counts)
    with pytest.raises(ValueError, match=r"has 1; give pictures of more families$"):
        check_family_count(one, counts)


def test_mined_mismatches_are_of_the_lists(pool: Pool) -> None:
    mined, rng = mined_at_random(pool), random.Random(0)
    kept_image = 0
    for _ in range(20):
        batch = pool.pool.pair_batch(rng, 8, 0.7, mined, mined_negative_share=1.0)

        texts, images = pool.text_scenes(batch.texts), image_scenes(batch.tokens)
        assert texts[:32] == images[:32]
        for own, text, image in zip(texts[:32], texts[32:], images[32:], strict=True):
            if own == image:
                assert text in mined.texts_of_image.numbers[own]
                kept_image += 1
            else:
                assert own == text
                assert image in mined.images_of_text.numbers[own]

    _assert_share(kept_image, 20 * 32, 0.5)


def test_a_triplet_batch_holds_pairs_and_their_mined_negatives(pool: Pool) -> None:
    mined, rng = mined_at_random(pool), random.Random(0)

    batch = pool.pool.triplet_batch(rng, 6, 3, mined)

    texts = torch.tensor(pool.text_scenes(batch.texts)).view(6, 4).tolist()
    images = torch.tensor(image_scenes(batch.tokens)).view(6, 4).tolist()
    own = [row[0] for row in texts]
    assert own == [row[0] for row in images]
    assert len(set(families(own))) == 6
    for number, text_row, image_row in zip(own, texts, images, strict=True):
        assert set(text_row[1:]) <= set(mined.texts_of_image.numbers[number].tolist())
        assert set(image_row[1:]) <= set(mined.images_of_text.numbers[number].tolist())
        assert len(set(text_row)) == len(set(image_row)) == 4


def test_scenes_that_say_the_same_are_one_group() -> None:
    """Single drawings of two families may be counted alike; siblings are always distinguished."""
    families = list(islice(scene_families("train", 1), 400))
    scenes = [scene for family in families for scene in family]
    pool = PairPool(
        ScenePairs(families),
        HeldImages(torch.zeros(len(scenes), 1, 1)),
        Tokenizer(WordLevel()),
        64,
    )

    groups = pool.groups().tolist()

    captions = [_captions(scene) for scene in scenes]
    shared = {
        (one, other)
        for one in range(len(scenes))
        for other in range(one)
        if captions[one] & captions[other]
    }
    assert shared  # or the seed shows nothing
    assert all(groups[one] == groups[other] for one, other in shared)
    assert all(len(set(groups[n : n + 4])) == 4 for n in range(0, len(scenes), 4))


def test_every_picture_is_drawn_once_and_in_order(pool: Pool) -> None:
    chunks = list(pool.pool.in_order(random.Random(0), 50))

    assert [len(chunk.tokens) for chunk in chunks] == [50, 50, 50, 50, 40]
    for chunk in chunks:
        assert pool.text_scenes(chunk.texts) == image_scenes(chunk.tokens)
    assert image_scenes(torch.cat([chunk.tokens for chunk in chunks])) == list(range(240))


def test_no_fork_of_this_process_draws_scenes() -> None:
    """A fork of a process with gRPC threads may wait for ever."""
    before = set(multiprocessing.active_children())

    batches = labelled_pixels(3, 1, 2, 112)

    [worker] = set(multiprocessing.active_children()) - before
    parent = re.search(r"PPid:\t(\d+)", Path(f"/proc/{worker.pid}/status").read_text())
    assert parent is not None
    assert int(parent[1]) != os.getpid()
    assert len(list(batches)) == 2


def test_labelled_pixels_are_the_scenes_in_order() -> None:
    """Drawn in another process, they are those of the same seed drawn here."""
    batches = list(labelled_pixels(seed=5, batch_size=6, batch_count=2, image_size=112))

    scenes: list[Scene] = [
        scene for family in islice(scene_families("train", 5), 3) for scene in family
    ]
    assert [len(pixels) for pixels, _ in batches] == [6, 6]
    pixels_BHWC = torch.cat([pixels for pixels, _ in batches]).numpy()
    classes_BR = torch.cat([classes for _, classes in batches]).numpy()
    assert np.array_equal(pixels_BHWC, np.stack([scene_pixels(scene) for scene in scenes]))
    assert np.array_equal(classes_BR, np.stack([token_classes(scene, 112) for scene in scenes]))


def _mismatches(pool: Pool, share: float) -> list[tuple[int, int]]:
    """Returns the (text, image) scene numbers of 1,280 mismatches."""
    return [
        pair
        for batch in ce_batches(pool, share)
        for pair in zip(
            pool.text_scenes(batch.texts)[32:], image_scenes(batch.tokens)[32:], strict=True
        )
    ]


def _assert_share(hits: int, count: int, share: float) -> None:
    """Asserts that a binomial draw is within four standard deviations of its mean."""
    assert abs(hits - count * share) <= 4 * math.sqrt(count * share * (1 - share))


def _captions(scene: Scene) -> set[str]:
    return {text for language in LANGUAGES for text in captions_of(scene, language)}


def _say(scene: Scene) -> str:
    return " ".join(text for language in LANGUAGES for text in captions_of(scene, language))
