"""Hinges of the hardest negative and of all, by loops; groups are left out."""

import pytest
import torch

from tandem.lab.zoo.network import hinge_loss

SCORES = torch.tensor([[0.5, 0.6, 0.1], [0.45, 0.9, 0.2], [0.0, 0.85, 0.3]])
MARGIN = 0.2


def _by_loops(groups: list[int], *, takes_hardest: bool) -> float:
    total = 0.0
    for row in range(3):
        captions, images = [0.0], [0.0]
        for other in range(3):
            if groups[other] == groups[row]:
                continue
            own = float(SCORES[row, row])
            captions.append(max(0.0, MARGIN + float(SCORES[row, other]) - own))
            images.append(max(0.0, MARGIN + float(SCORES[other, row]) - own))
        total += max(captions) + max(images) if takes_hardest else sum(captions) + sum(images)
    return total


@pytest.mark.parametrize("takes_hardest", [True, False])
def test_the_hinges_are_those_of_the_definition(takes_hardest: bool) -> None:
    for groups in ([0, 1, 2], [0, 1, 0], [0, 0, 1]):
        loss = hinge_loss(SCORES, torch.tensor(groups), MARGIN, takes_hardest=takes_hardest)

        by_loops = _by_loops(groups, takes_hardest=takes_hardest)
        assert loss.item() == pytest.approx(by_loops, abs=1e-6), groups


def test_the_two_differ() -> None:
    """By hand: row 2 has 0.75, column 0 has 0.15, and so on."""
    groups = torch.arange(3)

    hardest = hinge_loss(SCORES, groups, MARGIN, takes_hardest=True).item()
    every = hinge_loss(SCORES, groups, MARGIN, takes_hardest=False).item()

    # Captions: 0.3, 0, 0.75; images: 0.15, 0.15, 0.1. Of all hinges no other is above 0.
    assert hardest == pytest.approx(1.45, abs=1e-6)
    assert every == pytest.approx(1.45, abs=1e-6)
    low = SCORES.clone()
    low[0, 2] = 0.4
    assert hinge_loss(low, groups, MARGIN, takes_hardest=True).item() == pytest.approx(1.65)
    assert hinge_loss(low, groups, MARGIN, takes_hardest=False).item() == pytest.approx(1.85)
