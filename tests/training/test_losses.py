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

from tandem.training.losses import (
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


def test_captions_of_one_image_are_not_negatives_of_each_other() -> None:
    """Pairs 0 and 1 in one group: only pair 2 can be a negative of theirs, and they of it.

    Hardest text of i0, i1, i2: 1, 1, .4, so hinges 0, 0, .1.
    Hardest image of t0, t1, t2: 1, .4, 1, so hinges 0, .1, 0. Mean: .2 / 3.
    """
    loss = batch_hard_triplet_loss(TEXTS, IMAGES, torch.tensor([7, 7, 2]), margin=0.3)

    assert loss.item() == pytest.approx(0.2 / 3)


def test_two_captions_of_one_image_count_its_image_once() -> None:
    """As if the image's second column were not there: for text 2, i0 twice is i0 once."""
    texts = torch.cat([TEXTS[:1], TEXTS[:1], TEXTS[2:]])
    images = torch.cat([IMAGES[:1], IMAGES[:1], IMAGES[2:]])

    loss = batch_hard_triplet_loss(texts, images, torch.tensor([0, 0, 2]), margin=1.0)

    # p = .2 each; t0, t0, t2 against the other image: 1, 1, 1; i0, i0, i2 against texts: 1, 1, 1.
    assert loss.item() == pytest.approx(2 * (0.2 - 1.0 + 1.0))


def test_a_batch_of_one_group_has_nothing_to_learn() -> None:
    """Masked positives stand at 2 or more, which no margin under 1 reaches from 1 or less."""
    loss = batch_hard_triplet_loss(TEXTS, IMAGES, torch.zeros(3, dtype=torch.int64), margin=0.3)

    assert loss.item() == 0.0


@pytest.mark.parametrize(
    ("other_reading", "value"),
    [
        # VSE++ and its line: the sum over the batch.
        (lambda d: _triplet(d, APART, reduce=torch.sum), 0.5),
        # VSE++ and its line: only the diagonal is masked, whatever the groups.
        (lambda d: _triplet(d, APART, reduce=torch.mean), 0.5 / 3),
        # The plain triplet loss: every negative, not the hardest. Off the diagonal stand .4 three
        # times and 1 three times; each .4 makes .1 once by row and once by column.
        (lambda d: _every_negative(d), 0.6 / 3),
    ],
)
def test_other_readings_give_other_numbers(other_reading: object, value: float) -> None:
    """What the authors' relatives do differs from ours on a batch with a group of two."""
    grouped = batch_hard_triplet_loss(TEXTS, IMAGES, torch.tensor([7, 7, 2]), margin=0.3)

    other = other_reading(1 - TEXTS @ IMAGES.T)

    assert other.item() == pytest.approx(value)
    assert other.item() != pytest.approx(grouped.item())


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


def test_only_pairs_within_the_margin_move() -> None:
    """Gradient reaches the pair and its hardest negatives, and nothing else."""
    texts = TEXTS.clone().requires_grad_()
    images = IMAGES.clone().requires_grad_()

    batch_hard_triplet_loss(texts, images, APART, margin=0.15).backward()
    # .2 - .4 + .15 < 0 everywhere: all pairs are apart by more than the margin.
    assert texts.grad is not None
    assert texts.grad.abs().sum() == 0

    batch_hard_triplet_loss(texts, images, APART, margin=0.3).backward()
    # Text 2 has no near image, but it is pulled to its own, whose hardest text is t1.
    assert texts.grad is not None
    assert images.grad is not None
    assert (texts.grad.abs().sum(dim=1) > 0).all()
    assert (images.grad.abs().sum(dim=1) > 0).all()


def test_the_sampled_triplet_loss_by_hand() -> None:
    """One pair at .2 (text 0, image 0), margin .3: a negative counts when nearer than .5.

    Its wrong images i1, i2 are at .4 and 1 from t0, so hinges .1, 0. Its wrong texts t1, t2 are at
    .4 and 1 from i0, so hinges .1, 0. Mean over four hinges: .2 / 4.
    """
    loss = sampled_triplet_loss(TEXTS[None], IMAGES[None], margin=0.3)

    assert loss.item() == pytest.approx(0.05)
    # The hardest alone, as in the batch-hard loss, would be .1 + .1.
    assert loss.item() != pytest.approx(0.2)


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


def test_the_in_batch_softmax_covers_both_directions() -> None:
    """Swapping texts and images changes nothing; one direction alone would be another number."""
    generator = torch.Generator().manual_seed(1)
    texts, images = (F.normalize(torch.randn(5, 4, generator=generator), dim=-1) for _ in range(2))

    loss = in_batch_softmax_loss(texts, images, 0.1)

    assert_allclose(loss, in_batch_softmax_loss(images, texts, 0.1), **CLOSE)
    one_way = F.cross_entropy(texts @ images.T / 0.1, torch.arange(5))
    assert loss.item() != pytest.approx(one_way.item())


def test_the_pair_loss_by_hand() -> None:
    """Logits 0, ln 3 and -ln 3 are probabilities 1/2, 3/4 and 1/4; they match, match, do not.

    (-ln 1/2 - ln 3/4 - ln(1 - 1/4)) / 3.
    """
    logits = torch.tensor([0.0, math.log(3), -math.log(3)])

    loss = pair_classification_loss(logits, torch.tensor([1, 1, 0]))

    assert loss.item() == pytest.approx((math.log(2) + 2 * math.log(4 / 3)) / 3)


def test_the_pair_loss_is_that_of_two_classes() -> None:
    """The paper says BCE, its code takes a softmax of two: equal on z1 - z0, not on z1 alone."""
    logits_B2 = torch.randn(16, 2, generator=torch.Generator().manual_seed(2))
    matches = torch.arange(16) % 2

    loss = pair_classification_loss(logits_B2[:, 1] - logits_B2[:, 0], matches)

    assert_allclose(loss, F.cross_entropy(logits_B2, matches), **CLOSE)
    of_z1 = F.binary_cross_entropy_with_logits(logits_B2[:, 1], matches.float())
    assert loss.item() != pytest.approx(of_z1.item())


def test_the_pair_loss_pulls_matches_up_and_mismatches_down() -> None:
    """The gradient is probability less label, over the batch: (1/2 - 1) / 2 and (1/2 - 0) / 2."""
    logits = torch.zeros(2, requires_grad=True)

    pair_classification_loss(logits, torch.tensor([1.0, 0.0])).backward()

    assert logits.grad is not None
    assert logits.grad.tolist() == [-0.25, 0.25]


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


def _every_negative(distance_BB: Tensor, margin: float = 0.3) -> Tensor:
    positive_B = distance_BB.diagonal()
    apart_BB = 1 - torch.eye(len(distance_BB))
    by_text = F.relu(positive_B[:, None] - distance_BB + margin) * apart_BB
    by_image = F.relu(positive_B[None, :] - distance_BB + margin) * apart_BB
    return (by_text + by_image).sum() / len(distance_BB)


def test_the_masked_word_loss_by_hand() -> None:
    """Scores ln 3 against 0 and 0 give the first of three words 3 / 5; even ones a third each.

    Words 0 and 2: (ln 5/3 + ln 3) / 2.
    """
    logits_MV = torch.tensor([[math.log(3.0), 0.0, 0.0], [0.0, 0.0, 0.0]])

    loss = masked_word_loss(logits_MV, torch.tensor([0, 2]), 2)

    assert loss.item() == pytest.approx((math.log(5 / 3) + math.log(3)) / 2)


def test_parts_of_a_batch_make_the_masked_word_loss_of_the_whole() -> None:
    """Over the mean of their counts; each over its own count would weigh a word by its part."""
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
