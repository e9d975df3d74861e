"""Defines the small convolutional network that turns pixels into a grid of image tokens.

Shapes: B batch, H W pixels, C channels, R image tokens, D token width.
"""

import torch
from torch import Tensor, nn

from tandem.modeling.config import JointConfig


class ImageBackbone(nn.Module):
    """Turns pixels into a grid of image tokens, one for each 16 x 16 pixels."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.stem = _ConvNorm(3, 64, kernel_size=4, stride=4)
        self.stages = nn.Sequential(
            _Residual(64),
            _ConvNorm(64, 128, kernel_size=3, stride=2),
            _Residual(128),
            _ConvNorm(128, 256, kernel_size=3, stride=2),
            _Residual(256),
        )
        self.project = nn.Linear(256, config.token_width)
        self.norm = nn.LayerNorm(config.token_width)

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, R, D], the precision in which the index stores them."""
        return self.tokens(pixels).half()

    def tokens(self, pixels: Tensor) -> Tensor:
        """Returns [B, R, D] in the precision of the weights, for training."""
        scaled = pixels.permute(0, 3, 1, 2).to(self.norm.weight.dtype) / 127.5 - 1.0
        grid_BCHW = self.stages(self.stem(scaled))
        tokens_BRD = self.project(grid_BCHW.flatten(2).transpose(1, 2))
        if tokens_BRD.dtype is torch.float16:
            # Projected in half precision; CUDA's norm needs input and weights of one type.
            tokens_BRD = tokens_BRD.to(self.norm.weight.dtype)
        return self.norm(tokens_BRD)


class _ConvNorm(nn.Sequential):
    def __init__(self, into: int, out: int, kernel_size: int, stride: int) -> None:
        padding = kernel_size // 2 if kernel_size % 2 else 0
        super().__init__(
            nn.Conv2d(into, out, kernel_size, stride, padding, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        )


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _ConvNorm(channels, channels, kernel_size=3, stride=1)
        self.second = _ConvNorm(channels, channels, kernel_size=3, stride=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))
