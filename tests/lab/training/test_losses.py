"""The objectives, each against numbers worked by hand and against how others read the papers.

Shapes: B batch, R image tokens, C classes.
"""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from torch import Tensor

from tandem.lab.training.losses import (
    batch_hard_triplet_loss,
    in_batch_softmax_loss,
    labelling_loss,
    masked_word_loss,
    pair_classification_loss,
    pair_triplet_loss,
    sampled_triplet_loss,
)

# Texts along the axes, so that cosines are the images' own values. As a table, text by image:
#        i0   i1   i2           1 - cos:  i0   i1   i2
#   t0   .8   .6    0                t0   .2   .4    1
#   t1   .6   .8   .6                t1   .4   .2   .4
#   t2    0    0   .8                t2    1    1   .2
TEXTS = torch.eye(3)
IMAGES = torch.tensor([[0.8, 0.6, 0.0], [0.6, 0.8, 0.0], [0.0, 0.6, 0.8]])
APART = torch.tensor([0, 1, 2])

# torch's own comparison imports two seconds of distributed tensors.
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


def test_the_triplet_loss_by_hand() -> None:
    """Positives are all at .2; with margin .3 a negative counts when nearer than .5.

    Hardest text of i0, i1, i2: .4, .4, .4, so hinges .2 - .4 + .3 = .1, .1, .1.
    Hardest image of t0, t1, t2: .4, .4, 1, so hinges .1, .1, 0.
    Mean over three rows: (.2 + .2 + .1) / 3.
    """
    loss = batch_hard_triplet_loss(TEXTS, IMAGES, APART, margin=0.3)

    assert loss.item() == pytest.approx(0.5 / 3)


def test_the_triplet_loss_against_a_plain_loop() -> None:
    """Ten random batches with groups, read off the definition pair by pair."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        texts, images = (
            F.normalize(torch.randn(9, 4, generator=generator), dim=-1) for _ in range(2)
        )
        groups = torch.randint(0, 5, (9,), generator=generator)

        loss = batch_hard_triplet_loss(texts, images, groups, margin=0.2)

        expected = _triplet(1 - texts @ images.T, groups, margin=0.2)
        assert_allclose(loss, expected, **CLOSE)


def test_the_sampled_triplet_loss_keeps_its_pairs_apart() -> None:
    """Two pairs with two negatives each, other than the batch's: t1's and i1's, worked alike.

    Pair 1 is (t1, i1) at .2. Wrong images i0 at .4 and i2 at .4 from t1: hinges .1, .1. Wrong texts
    t0 at .4 and t2 at 1 from i1: hinges .1, 0. With the first pair's .1, .1: .5 / 8.
    """
    order = [1, 0, 2]
    texts, images = torch.stack([TEXTS, TEXTS[order]]), torch.stack([IMAGES, IMAGES[order]])

    loss = sampled_triplet_loss(texts, images, margin=0.3)

    assert loss.item() == pytest.approx(0.5 / 8)


def test_the_in_batch_softmax_by_hand() -> None:
    """Cosines over the temperature are [[0, 0], [ln 3, 0]], and the diagonal is wanted.

    By row: -ln(1/2) and -ln(1/4). By column: -ln(1/4) and -ln(1/2). Mean: 1.5 ln 2.
    """
    texts, temperature = torch.eye(2), 0.5
    images = torch.tensor([[0.0, math.log(3) * temperature], [0.0, 0.0]])

    loss = in_batch_softmax_loss(texts, images, temperature)

    assert loss.item() == pytest.approx(1.5 * math.log(2))


def test_the_pair_loss_is_that_of_two_classes() -> None:
    """The paper says BCE, its code takes a softmax of two: equal on z1 - z0, not on z1 alone."""
    logits_B2 = torch.randn(16, 2, generator=torch.Generator().manual_seed(2))
    matches = torch.arange(16) % 2

    loss = pair_classification_loss(logits_B2[:, 1] - logits_B2[:, 0], matches)

    assert_allclose(loss, F.cross_entropy(logits_B2, matches), **CLOSE)
    of_z1 = F.binary_cross_entropy_with_logits(logits_B2[:, 1], matches.float())
    assert loss.item() != pytest.approx(of_z1.item())


def test_the_pair_triplet_loss_by_hand() -> None:
    """Probabilities 1/2 and 3/4 of two matches, 3/4 and 1/4 of their mismatches, margin 0.2.

    (max(0, 0.2 + 3/4 - 1/2) + max(0, 0.2 + 1/4 - 3/4)) / 2 = 0.45 / 2.
    """
    logits = torch.tensor([0.0, math.log(3), math.log(3), -math.log(3)])

    assert pair_triplet_loss(logits, 0.2).item() == pytest.approx(0.225)
    # Each mismatch is held against its own match: crossed they would give (0.2 + 0) / 2.
    crossed = logits[[0, 1, 3, 2]]
    assert pair_triplet_loss(crossed, 0.2).item() == pytest.approx(0.1)


def test_the_labelling_loss_by_hand() -> None:
    """One empty token, ln 2 off and weighing .2; one drawing, ln 1.5 off and weighing 1.

    Softmax of (ln 2, 0, 0) gives class 0 1/2; of (0, ln 4, 0) gives class 1 4/6.
    """
    logits_BRC = torch.tensor([[[math.log(2), 0.0, 0.0], [0.0, math.log(4), 0.0]]])
    classes_BR = torch.tensor([[0, 1]])

    loss = labelling_loss(logits_BRC, classes_BR)

    assert loss.item() == pytest.approx((0.2 * math.log(2) + math.log(1.5)) / 1.2)
    evenly = F.cross_entropy(logits_BRC[0], classes_BR[0])
    assert loss.item() != pytest.approx(evenly.item())


def test_the_labelling_loss_takes_half_precision() -> None:
    """Under autocast the logits come in bfloat16; the sum over classes is taken in float32."""
    logits = torch.randn(2, 49, 120, generator=torch.Generator().manual_seed(3)).bfloat16()

    loss = labelling_loss(logits, torch.zeros(2, 49, dtype=torch.int64))

    assert loss.dtype is torch.float32
    assert loss.isfinite()


def _triplet(
    distance_BB: Tensor, groups_B: Tensor, margin: float = 0.3, reduce: object = torch.mean
) -> Tensor:
    rows = []
    for j in range(len(distance_BB)):
        others = [n for n in range(len(distance_BB)) if groups_B[n] != groups_B[j]]
        if not others:
            rows.append(torch.zeros(()))
            continue
        positive = distance_BB[j, j]
        text = min(distance_BB[n, j] for n in others)
        image = min(distance_BB[j, n] for n in others)
        rows.append(F.relu(positive - text + margin) + F.relu(positive - image + margin))
    result: Tensor = reduce(torch.stack(rows))
    return result


def test_the_masked_word_loss_by_hand() -> None:
    """Scores ln 3 against 0 and 0 give the first of three words 3 / 5; even ones a third each.

    Words 0 and 2: (ln 5/3 + ln 3) / 2.
    """
    logits_MV = torch.tensor([[math.log(3.0), 0.0, 0.0], [0.0, 0.0, 0.0]])

    loss = masked_word_loss(logits_MV, torch.tensor([0, 2]), 2)

    assert loss.item() == pytest.approx((math.log(5 / 3) + math.log(3)) / 2)


def test_parts_of_a_batch_make_the_masked_word_loss_of_the_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_MV = torch.randn(4, 6, generator=generator)
    words_M = torch.tensor([3, 0, 5, 1])
    whole = masked_word_loss(logits_MV, words_M, 4)

    def mean_of_parts(counts: tuple[float, float]) -> float:
        first = masked_word_loss(logits_MV[:1], words_M[:1], counts[0])
        second = masked_word_loss(logits_MV[1:], words_M[1:], counts[1])
        return (first + second).item() / 2

    assert mean_of_parts((2, 2)) == pytest.approx(whole.item())
    assert mean_of_parts((1, 3)) != pytest.approx(whole.item(), rel=1e-2)
