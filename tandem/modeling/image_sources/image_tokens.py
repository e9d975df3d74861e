"""Gives image tokens: from pixels by one of three backbones, or from a detector's file.

Shapes: B records, H W pixels, S tokens on a side, P pixels on a patch's side, R image tokens, D
token width.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tandem.corpus.records import Record
from tandem.model_io.pictures.image import decode_image
from tandem.model_io.pictures.image_rules import ImageRules
from tandem.modeling.config import TOKEN_SIZE, JointConfig
from tandem.modeling.image_sources.efficientnet import EfficientNetLite0
from tandem.modeling.image_sources.image_backbone import ImageBackbone
from tandem.modeling.image_sources.vision_tower import VisionTower


class RecordTokens(Protocol):
    """Gives the image tokens of a corpus' records."""

    def of(self, records: Sequence[Record]) -> tuple[Tensor, Tensor]:
        """Returns float16 [B, R, D] with its mask, int64 [B, R], 1 where a token counts."""


class PixelTokens:
    """Computes image tokens of a record's picture with a backbone; all of them count."""

    def __init__(self, backbone: nn.Module, rules: ImageRules) -> None:
        self._backbone, self._rules = backbone, rules

    @torch.inference_mode()
    def of(self, records: Sequence[Record]) -> tuple[Tensor, Tensor]:
        """Returns tokens and mask; raises the TandemError of a picture that cannot be read."""
        pixels_BHW3 = np.stack(
            [decode_image(record.image.read(), self._rules) for record in records]
        )
        tokens_BRD: Tensor = self._backbone(torch.from_numpy(pixels_BHW3))
        return tokens_BRD, torch.ones(tokens_BRD.shape[:2], dtype=torch.int64)


class PatchTokens(nn.Module):
    """Cuts pixels into patches. It has no weights: the encoder projects the patches."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.side = config.grid_side

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [B, H, W, 3] -> float16 [B, R, D], -1 to 1, row by row from the top left."""
        scaled = pixels.to(torch.float32) / 127.5 - 1.0
        cut_BSPSP3 = scaled.unflatten(2, (self.side, TOKEN_SIZE)).unflatten(
            1, (self.side, TOKEN_SIZE)
        )
        return cut_BSPSP3.transpose(2, 3).flatten(3).flatten(1, 2).half()


class NoPixels(nn.Module):
    """Stands in for the backbone of a model that reads regions, which do not come from pixels."""

    def forward(self, pixels: Tensor) -> Tensor:
        raise ValueError(
            "this model reads a detector's regions (image_source regions), not pixels; give it a "
            "file of regions"
        )


Backbone = ImageBackbone | PatchTokens | EfficientNetLite0 | VisionTower | NoPixels


def image_backbone_of(config: JointConfig) -> Backbone:
    """Returns the module that turns pixels into image tokens, float16 [B, R, D], untrained."""
    match config.image_source:
        case "grid":
            return ImageBackbone(config)
        case "patches":
            return PatchTokens(config)
        case "efficientnet_lite0" | "efficientnet_lite0_early":
            return EfficientNetLite0(config)
        case "vision_tower":
            return VisionTower(config)
        case "regions":
            return NoPixels()
