"""Steps: accumulated gradients are those of one large batch, where that can be."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tandem.lab.training.losses import pair_classification_loss
from tandem.lab.training.optimisation import accumulate_gradient, recipe_optimiser, step
from tandem.lab.training.recipes.named_recipes import tiny
from tandem.modeling.joint_model import JointModel
from tests.support.modeling.tiny_checkpoint import tiny_model

COUNT, SIZE = 4, 6


class Pairs:
    """COUNT micro-batches of SIZE rows of random texts and images, match and mismatch in turn."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        self.ids = torch.randint(4, 60, (COUNT * SIZE, 7), generator=generator)
        self.tokens = torch.randn(COUNT * SIZE, 49, 16, generator=generator).half()
        self.matches = torch.arange(COUNT * SIZE) % 2

    def ce_loss(self, model: JointModel, rows: slice) -> Tensor:
        ids = self.ids[rows]
        logits = model.match_logits(ids, torch.ones_like(ids), self.tokens[rows])
        return pair_classification_loss(logits, self.matches[rows])


def micro_batches() -> Iterator[slice]:
    return (slice(start, start + SIZE) for start in range(0, COUNT * SIZE, SIZE))


def gradient(model: JointModel) -> Tensor:
    """Returns the whole gradient of the encoder, one after another, and forgets it."""
    parts = [p.grad for p in model.joint_encoder.parameters()]
    model.zero_grad()
    return torch.cat([part.flatten() for part in parts if part is not None])


def test_the_ces_accumulated_gradient_is_that_of_one_large_batch() -> None:
    """To 1e-6 of its largest part; so is the loss."""
    pairs, rows = Pairs(), micro_batches()
    parted, whole_model = tiny_model(), tiny_model()

    parts_loss = accumulate_gradient(lambda: pairs.ce_loss(parted, next(rows)), COUNT)
    whole_loss = pairs.ce_loss(whole_model, slice(None))
    whole_loss.backward()

    whole = gradient(whole_model)
    assert whole.abs().max() > 1e-3  # or equality says nothing
    assert (gradient(parted) - whole).abs().max() <= 1e-6
    assert parts_loss == pytest.approx(whole_loss.item(), abs=1e-6)


def test_a_step_is_cut_to_its_norm() -> None:
    """Gradient (3, 4) is 5 long: cut to 1 it is (.6, .8), and plain descent goes a tenth of that.

    A second parameter has no gradient and stays where it is.
    """
    weight, other = (torch.zeros(2, requires_grad=True) for _ in range(2))
    optimiser = torch.optim.SGD([weight, other], lr=0.1)
    weight.grad = torch.tensor([3.0, 4.0])

    step(optimiser, clip_norm=1.0)

    assert weight.tolist() == pytest.approx([-0.06, -0.08], abs=1e-6)
    assert other.tolist() == [0.0, 0.0]


def test_the_loss_of_micro_batches_is_their_mean() -> None:
    """Slopes 3 and 5 on a weight of a half: losses 1.5 and 2.5, gradient 4."""
    slopes = iter([3.0, 5.0])
    weight = torch.tensor(0.5, requires_grad=True)

    loss = accumulate_gradient(lambda: next(slopes) * weight, 2)

    assert loss == pytest.approx(2.0)
    assert weight.grad is not None
    assert weight.grad.item() == pytest.approx(4.0)


def test_the_second_beta_says_how_soon_squared_gradients_are_forgotten() -> None:
    """Worked by hand, epsilon 0: after gradient sqrt(2), then 0, their average is this."""
    beta2, squares = 0.75, (0.5, 0.375)
    weight = torch.zeros(1, requires_grad=True)
    recipe = replace(tiny(1), adam_beta2=beta2, adam_epsilon=1e-12)
    optimiser = recipe_optimiser([{"params": [weight]}], 0.1, recipe)

    for gradient_of_step, square in zip((2**0.5, 0.0), squares, strict=True):
        weight.grad = torch.tensor([gradient_of_step])
        step(optimiser, clip_norm=10.0)
        assert optimiser.state[weight]["exp_avg_sq"].item() == pytest.approx(square)
    assert optimiser.param_groups[0]["betas"] == (0.9, beta2)
    assert recipe_optimiser([{"params": [weight]}], 0.1, tiny(1)).defaults["betas"] == (0.9, 0.999)
