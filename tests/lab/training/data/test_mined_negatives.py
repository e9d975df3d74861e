"""Mined negatives: the nearest by plain sorting, never a match, drawn as the softmax says."""

import math
import random
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.lab.training.data.mined_negatives import MinedNegatives, NearestWrong, nearest_wrong

COUNT = 600  # more than two chunks of rows


def embeddings(seed: int) -> tuple[Tensor, Tensor]:
    """Returns texts and images of unit length whose pairs lie near each other."""
    generator = torch.Generator().manual_seed(seed)
    texts = torch.randn(COUNT, 8, generator=generator)
    images = texts + 0.3 * torch.randn(COUNT, 8, generator=generator)
    return F.normalize(texts, dim=-1), F.normalize(images, dim=-1)


def test_the_nearest_wrong_are_those_of_plain_sorting() -> None:
    texts, images = embeddings(0)
    groups = torch.arange(COUNT) // 3

    mined = nearest_wrong(texts, images, groups, 4)

    for nearest, own, others in (
        (mined.images_of_text, texts, images),
        (mined.texts_of_image, images, texts),
    ):
        for number in (0, 255, 256, 599):
            cosines = (others @ own[number]).tolist()
            order = sorted(range(COUNT), key=lambda n: -cosines[n])
            wrong = [n for n in order if n // 3 != number // 3][:4]
            assert nearest.numbers[number].tolist() == wrong
            assert nearest.cosines[number].tolist() == pytest.approx(
                [cosines[n] for n in wrong], abs=1e-6
            )


def test_a_mined_negative_is_never_a_match() -> None:
    """Copies of a picture under other numbers are its nearest, and in its group: none is drawn."""
    texts, images = embeddings(1)
    groups = torch.arange(COUNT) % 100  # each picture six times over
    texts, images = texts[groups], images[groups]
    rng = random.Random(0)

    mined = nearest_wrong(texts, images, groups, 5)

    for nearest in (mined.images_of_text, mined.texts_of_image):
        for number in range(COUNT):
            drawn = nearest.draw(number, 5, rng)
            assert all(groups[other] != groups[number] for other in drawn)
    # Positive control: mined as if every number were its own group, the copies are all there is.
    blind = nearest_wrong(texts, images, torch.arange(COUNT), 5)
    assert (groups[blind.images_of_text.numbers] == groups[:, None]).float().mean() > 0.9


def test_lists_are_no_longer_than_the_largest_group_leaves() -> None:
    texts, images = (e[:6] for e in embeddings(2))
    groups = torch.tensor([0, 0, 0, 0, 1, 2])

    mined = nearest_wrong(texts, images, groups, 50)

    assert mined.texts_of_image.numbers.shape == (6, 2)
    assert mined.texts_of_image.cosines.isfinite().all()
    assert sorted(mined.images_of_text.numbers[0].tolist()) == [4, 5]


def test_draws_follow_the_softmax_of_the_cosines() -> None:
    """Cosines 0, ln 2 and ln 5 are drawn as 1 : 2 : 5, within four standard deviations."""
    nearest = NearestWrong(
        torch.tensor([[7, 8, 9]], dtype=torch.int32),
        torch.tensor([[0.0, math.log(2), math.log(5)]]),
    )
    rng, count = random.Random(0), 4_000

    drawn = Counter(nearest.draw(0, 1, rng)[0] for _ in range(count))

    for number, share in ((7, 1 / 8), (8, 2 / 8), (9, 5 / 8)):
        assert abs(drawn[number] - count * share) <= 4 * math.sqrt(count * share * (1 - share))


def test_no_negative_is_drawn_twice_for_one_pair() -> None:
    nearest = NearestWrong(torch.tensor([[7, 8, 9]]), torch.tensor([[0.9, 0.1, 0.1]]))
    rng = random.Random(0)

    assert all(sorted(nearest.draw(0, 3, rng)) == [7, 8, 9] for _ in range(50))


def test_a_seed_draws_the_same() -> None:
    texts, images = embeddings(3)
    mined = nearest_wrong(texts, images, torch.arange(COUNT), 50)
    again = MinedNegatives.from_tensors(mined.to_tensors())

    def drawn(negatives: MinedNegatives, seed: int) -> list[list[int]]:
        rng = random.Random(seed)
        both = (negatives.images_of_text, negatives.texts_of_image)
        return [each.draw(number, 7, rng) for each in both for number in range(20)]

    assert drawn(again, 1) == drawn(mined, 1)
    assert drawn(mined, 2) != drawn(mined, 1)
