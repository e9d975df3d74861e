"""Takes optimiser steps: gradient accumulation, clipping, weight decay, learning rate schedule."""

import math
from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from tandem.lab.training.recipes.recipe import Decay, Recipe, Rounds, TowerRates
from tandem.modeling.towers.two_towers import TwoTowers

_ADAM_BETA1 = 0.9


class NotFinite(ArithmeticError):
    """A loss, a gradient or a weight is NaN or infinite."""


def check_loss(name: str, loss: float) -> None:
    """Raises NotFinite for a loss that is NaN or infinite."""
    if not math.isfinite(loss):
        raise NotFinite(f"the {name} loss is {loss}")


def accumulate_gradient(micro_batch_loss: Callable[[], Tensor], count: int) -> float:
    """Adds the mean gradient of `count` micro-batches to the parameters; returns their mean loss.

    For a loss that is a mean over rows, such as the CE's, this equals the gradient of one batch
    `count` times as large. The BE's differs, because its negatives come from the micro-batch. The
    code of Geigle et al. sums and does not divide, so its gradient is `count` times as large, up to
    the clip.
    """
    total = 0.0
    for _ in range(count):
        loss = micro_batch_loss()
        (loss / count).backward()
        total += loss.item()
    return total / count


def step(optimiser: Optimizer, clip_norm: float) -> None:
    """Takes one optimiser step, with the gradient clipped to a global norm of `clip_norm`.

    Raises NotFinite, having changed no parameter, where the norm is NaN or infinite.
    """
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, clip_norm).item()
    if not math.isfinite(norm):
        raise NotFinite(f"the gradient's norm is {norm}")
    optimiser.step()


def decayed_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Returns AdamW's parameter groups: matrices decay, biases and norms do not."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    others = [p for p in module.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def recipe_groups(encoder: nn.Module, recipe: Rounds) -> list[dict[str, object]]:
    """Returns AdamW's parameter groups for the rounds.

    In two towers the matcher with its parts, and a frozen text encoder, learn nothing then.
    """
    if not isinstance(encoder, TwoTowers):
        return decayed_groups(encoder, recipe.weight_decay)
    for part in encoder.matcher_parts():
        part.requires_grad_(False)
    encoder.text.tower.requires_grad_(not recipe.has_frozen_text)
    encoder.log_scale.requires_grad_(recipe.learns_temperature)
    return tower_groups(encoder, recipe)


def tower_groups(
    encoder: TwoTowers, recipe: TowerRates, matcher_learning_rate: float = 0.0
) -> list[dict[str, object]]:
    """Returns the groups of what requires a gradient, each part with its rate.

    Published text encoders, the late blocks of a picture network, the matcher, and everything else
    have a rate each; in rounds, where the matcher does not learn, its rate is not read.
    """
    parts: list[tuple[nn.Module, float]] = [
        *((trunk, recipe.learning_rate) for trunk in encoder.text_trunks()),
        *((top, recipe.learning_rate) for top in encoder.text_tops()),
        *((late, recipe.late_learning_rate) for late in encoder.late_blocks()),
    ]
    if encoder.matcher is not None:
        parts.append((encoder.matcher, matcher_learning_rate))
    return rated_groups(encoder, parts, recipe.head_learning_rate, recipe.weight_decay)


def rated_groups(
    module: nn.Module,
    parts: Iterable[tuple[nn.Module, float]],
    learning_rate: float,
    weight_decay: float,
) -> list[dict[str, object]]:
    """Returns the groups of what requires a gradient; each of the parts has a rate of its own."""
    rates = {id(each): rate for part, rate in parts for each in part.parameters()}
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for each in module.parameters():
        if each.requires_grad:
            key = (rates.get(id(each), learning_rate), each.ndim >= 2)
            groups.setdefault(key, []).append(each)
    return [
        {"params": parameters, "lr": rate, "weight_decay": weight_decay if is_matrix else 0.0}
        for (rate, is_matrix), parameters in groups.items()
    ]


def recipe_optimiser(
    groups: list[dict[str, object]], learning_rate: float, recipe: Recipe
) -> AdamW:
    """Returns AdamW over the groups, with the recipe's constants."""
    return AdamW(
        groups, learning_rate, betas=(_ADAM_BETA1, recipe.adam_beta2), eps=recipe.adam_epsilon
    )


def recipe_schedule(optimiser: AdamW, step_count: int, recipe: Recipe) -> LambdaLR:
    """Returns the recipe's schedule over that many steps."""
    return warm_up_then_decay(
        optimiser, step_count, recipe.warm_up_step_count, recipe.learning_rate_decay
    )


def warm_up_then_decay(
    optimiser: AdamW,
    step_count: int,
    warm_up_step_count: int = 100,
    decay: Decay = "linear",
) -> LambdaLR:
    """Returns a schedule that warms up, over at most a tenth of the steps, and falls to 0.

    The papers need no warm-up, because they start from pretrained weights. Half a cosine stays
    above the line for the first half of the steps, and falls below it in the second.
    """
    warm_up = min(warm_up_step_count, max(1, step_count // 10))

    def factor(step: int) -> float:
        left = max(0.0, (step_count - step) / step_count)
        if decay == "cosine":
            left = (1 + math.cos(math.pi * min(step, step_count) / step_count)) / 2
        return min((step + 1) / warm_up if warm_up else 1.0, left)

    return LambdaLR(optimiser, factor)
