"""One optimiser step, and how the learning rate goes."""

from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

_WARM_UP_STEP_COUNT = 100


def step(loss: Tensor, optimiser: AdamW, schedule: LambdaLR | None, clip_norm: float) -> None:
    """Goes one step down the loss' gradient, cut to `clip_norm` by its norm over all parameters."""
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [p for group in optimiser.param_groups for p in group["params"]]
    nn.utils.clip_grad_norm_(parameters, clip_norm)
    optimiser.step()
    if schedule:
        schedule.step()


def decayed_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Returns AdamW's groups: matrices decay; biases and norms do not."""
    matrices = [p for p in module.parameters() if p.ndim >= 2]
    others = [p for p in module.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]


def warm_up_then_linear(optimiser: AdamW, step_count: int) -> LambdaLR:
    """Returns a schedule that rises over 100 steps, or a tenth of them, and falls to 0 at the last.

    The papers start from pretrained weights and need no warm-up; from nothing one
    does.
    """
    warm_up = min(_WARM_UP_STEP_COUNT, max(1, step_count // 10))
    return LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm_up, max(0.0, (step_count - step) / step_count)),
    )
