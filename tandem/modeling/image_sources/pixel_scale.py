"""Rescales and normalises pixels inside a graph.

Shapes: B batch, H W pixels, C channels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

Numbers = float | Sequence[float]
"""One for each colour, or one for all three."""


class PixelScale(nn.Module):
    """Rescales and normalises pixels: uint8 [B, H, W, 3] to float32 [B, 3, H, W]."""

    mean_C11: Tensor  # noqa: N815  a shape
    std_C11: Tensor  # noqa: N815  a shape

    def __init__(self, factor: float, mean: Numbers, std: Numbers) -> None:
        super().__init__()
        self.factor = factor
        for name, numbers in (("mean_C11", mean), ("std_C11", std)):
            three = torch.tensor(numbers, dtype=torch.float32).expand(3)
            self.register_buffer(name, three.reshape(3, 1, 1))

    def forward(self, pixels_BHWC: Tensor) -> Tensor:
        pixels_BCHW = pixels_BHWC.permute(0, 3, 1, 2).to(torch.float32) * self.factor
        scaled: Tensor = (pixels_BCHW - self.mean_C11) / self.std_C11
        return scaled
