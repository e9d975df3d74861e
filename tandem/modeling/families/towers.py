"""Makes the two functions of a bi-encoder from a text model and an image model of transformers.

Shapes: B batch, H W pixels, C channels, T text tokens, d dimensions.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.pixel_scale import PixelScale


class TextTower(nn.Module):
    """Embeds texts: token ids and mask, int64 [B, T] each, to unit vectors float32 [B, d]."""

    def __init__(self, model: nn.Module, project: nn.Module, reads_padding: bool = False) -> None:
        super().__init__()
        self.model = model
        self.project = project
        self.reads_padding = reads_padding

    def forward(self, token_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        """Returns unit vectors, float32 [B, d]."""
        mask_BT = None if self.reads_padding else text_mask_BT
        pooled = self.model(input_ids=token_ids_BT, attention_mask=mask_BT).pooler_output
        return F.normalize(self.project(pooled), dim=-1)


class ImageTower(nn.Module):
    """Embeds pictures: pixels uint8 [B, H, W, 3] to unit vectors float32 [B, d]."""

    def __init__(self, scale: PixelScale, model: nn.Module, project: nn.Module) -> None:
        super().__init__()
        self.scale = scale
        self.model = model
        self.project = project

    def forward(self, pixels_BHWC: Tensor) -> Tensor:
        """Returns unit vectors, float32 [B, d]."""
        pooled = self.model(pixel_values=self.scale(pixels_BHWC)).pooler_output
        return F.normalize(self.project(pooled), dim=-1)
