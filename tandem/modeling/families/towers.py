"""Makes the two functions of a bi-encoder from a text model and an image model of transformers.

Shapes: B batch, H W pixels, C channels, T text tokens, D width, d dimensions.
"""

from typing import Final, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.image_sources.pixel_scale import PixelScale

Pooling = Literal["mean", "cls"]
# Hidden states of masked positions count nothing; a text has at least one position.
_LEAST_COUNT: Final = 1e-9


class TextTower(nn.Module):
    """Embeds texts: token ids and mask, int64 [B, T] each, to unit vectors float32 [B, d]."""

    def __init__(self, model: nn.Module, project: nn.Module, reads_padding: bool = False) -> None:
        super().__init__()
        self.model = model
        self.project = project
        self.reads_padding = reads_padding

    def forward(self, token_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
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
        pooled = self.model(pixel_values=self.scale(pixels_BHWC)).pooler_output
        return F.normalize(self.project(pooled), dim=-1)


class UnitLength(nn.Module):
    """Scales vectors [B, D] to unit length, between two layers."""

    def forward(self, vectors_BD: Tensor) -> Tensor:
        return F.normalize(vectors_BD, dim=-1)


class PooledTextTower(nn.Module):
    """Embeds texts: token ids and mask, int64 [B, T] each, to unit vectors float32 [B, d]."""

    def __init__(self, encoder: nn.Module, pooling: Pooling, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.head = head

    def forward(self, token_ids_BT: Tensor, text_mask_BT: Tensor) -> Tensor:
        states = self.encoder(input_ids=token_ids_BT, attention_mask=text_mask_BT)
        states_BTD = states.last_hidden_state
        if self.pooling == "cls":
            pooled_BD = states_BTD[:, 0]
        else:
            mask_BT1 = text_mask_BT.unsqueeze(-1).to(states_BTD.dtype)
            counts_B1 = mask_BT1.sum(dim=1).clamp(min=_LEAST_COUNT)
            pooled_BD = (states_BTD * mask_BT1).sum(dim=1) / counts_B1
        return F.normalize(self.head(pooled_BD), dim=-1)
