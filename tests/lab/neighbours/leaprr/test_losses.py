"""LeaPRR's losses by hand."""

import math

import pytest
import torch
from torch import Tensor

from tandem.lab.neighbours.leaprr.losses import (
    alignment_loss,
    hardest_positive_triplet_loss,
    neighbour_contrastive_loss,
    raw_hinge_loss,
    reconstruction_loss,
)

SCORES = torch.tensor([[1.0, 0.8, 0.4]])
WITHOUT_QUERY = torch.tensor([[False, True, True]])
ALL = torch.ones(1, 3, dtype=torch.bool)


def _mask(*nodes: int, count: int = 3) -> Tensor:
    return torch.tensor([[node in nodes for node in range(count)]])


def test_contrastive_without_the_query_by_hand() -> None:
    """-log(e^.8 / (e^.8 + e^.4))."""
    loss = neighbour_contrastive_loss(SCORES, _mask(1), WITHOUT_QUERY, temperature=1)

    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.4)))


def test_contrastive_with_the_query_by_hand() -> None:
    """As the code has it, at temperature 2: the query is a positive of score 1."""
    loss = neighbour_contrastive_loss(SCORES, _mask(0, 1), ALL, temperature=2)

    right = math.exp(0.5) + math.exp(0.4)
    assert loss.item() == pytest.approx(-math.log(right / (right + math.exp(0.2))))


def test_the_triplet_compares_with_the_lowest_positive_by_hand() -> None:
    """Positives .8 and .5, negatives .4 and .6: (.2 + .4 - .5) + (.2 + .6 - .5), the query not."""
    scores = torch.tensor([[1.0, 0.8, 0.5, 0.4, 0.6]])
    scored = _mask(1, 2, 3, 4, count=5)

    loss = hardest_positive_triplet_loss(scores, _mask(1, 2, count=5), scored, margin=0.2)

    assert loss.item() == pytest.approx(0.4)


def test_a_query_without_an_answer_pushes_all_away_only_if_it_is_kept() -> None:
    """Kept: relu(.2 + .9 - 1) = .1 and relu(.2 + .4 - 1) = 0. Skipped: nothing, and no NaN."""
    scores = torch.tensor([[1.0, 0.9, 0.4]], requires_grad=True)

    kept = hardest_positive_triplet_loss(scores, _mask(0), ALL, margin=0.2)
    skipped = hardest_positive_triplet_loss(scores, _mask(), WITHOUT_QUERY, margin=0.2)
    contrast = neighbour_contrastive_loss(scores, _mask(), WITHOUT_QUERY, temperature=1)
    (skipped + contrast).backward()

    assert kept.item() == pytest.approx(0.1)
    assert skipped.item() == contrast.item() == 0
    assert scores.grad is not None
    assert not scores.grad.any()


def test_skipped_queries_do_not_count_in_the_mean() -> None:
    two, targets = SCORES.repeat(2, 1), torch.cat([_mask(1), _mask()])
    scored = WITHOUT_QUERY.repeat(2, 1)

    assert neighbour_contrastive_loss(two, targets, scored, 1).item() == pytest.approx(
        math.log(1 + math.exp(-0.4))
    )


def test_the_raw_hinge_by_hand() -> None:
    """The least raw similarity is .3, with only .2 below; a missing node's 0 does not count."""
    scores = torch.tensor([[1.0, 0.2, 0.4, -1.0]])
    raw = torch.tensor([[0.9, 0.3, 0.5, 0.0]])

    loss = raw_hinge_loss(scores, raw, _mask(0, 1, 2, count=4))

    assert loss.item() == pytest.approx(0.1)


def test_alignment_by_hand() -> None:
    """P = (.5, .5) and q = (.75, .25): .5 log(2/3) + .5 log 2. The query is left out."""
    scores = torch.tensor([[1.0, 0.3, 0.3]], requires_grad=True)
    mapped = torch.tensor([[1.0, math.log(3), 0.0]], requires_grad=True)

    loss = alignment_loss(scores, mapped, WITHOUT_QUERY)
    loss.backward()

    assert loss.item() == pytest.approx(0.5 * math.log(4 / 3))
    swapped = alignment_loss(mapped, scores, WITHOUT_QUERY).item()
    assert swapped == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    for side in (scores, mapped):
        assert side.grad is not None
        assert side.grad.isfinite().all()
        assert side.grad[0, 1:].abs().min() > 0
        assert side.grad[0, 0] == 0


def test_reconstruction_by_hand() -> None:
    """(.6, .8) and (1, 0) are √(.16 + .64) apart; the second node is not valid."""
    features = torch.tensor([[[3.0, 4.0], [1.0, 0.0]]])
    rebuilt = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])

    loss = reconstruction_loss(features, rebuilt, _mask(0, count=2))

    assert loss.item() == pytest.approx(math.sqrt(0.8))
