"""Defines the image side of two towers: a trunk over a grid of image tokens, and its pooling.

Shapes: B batch, R image tokens, W token width, D width of the trunk, H heads, E embedding width.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.joint_encoder import PreNormLayer

_HEAD_COUNT = 8
_LAYER_HEAD_COUNT = 4


class GridTrunk(nn.Module):
    """Adapts frozen image tokens: a projection with positions, and one transformer layer."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.head_width
        self.token_norm = nn.LayerNorm(config.token_width)
        self.dropout = nn.Dropout(config.head_dropout)
        self.project = nn.Linear(config.token_width, width)
        self.position = nn.Parameter(torch.randn(config.image_token_count, width) * 0.02)
        shape = replace(
            config,
            width=width,
            head_count=_LAYER_HEAD_COUNT,
            feed_forward_width=2 * width,
            dropout=config.head_dropout,
        )
        self.layer = PreNormLayer(shape)
        self.norm = nn.LayerNorm(width)

    def forward(self, image_tokens: Tensor, image_mask: Tensor) -> Tensor:
        """Returns the states of image tokens, float32 [B, R, D].

        image_tokens: [B, R, W]; image_mask: int64 [B, R], 1 where a token counts.
        """
        tokens_BRW = self.token_norm(image_tokens.to(self.token_norm.weight.dtype))
        grid_BRD = self.project(self.dropout(tokens_BRW)) + self.position[: image_tokens.shape[1]]
        states_BRD: Tensor = self.norm(self.layer(grid_BRD, image_mask.bool()[:, None, None, :]))
        return states_BRD.float()


class GridHead(nn.Module):
    """Pools a trunk's states: several heads attend to parts, and the mean sees everything."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        width = config.head_width
        self.trunk = GridTrunk(config)
        self.attend = nn.Linear(width, _HEAD_COUNT)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(2 * width, config.embedding_dim)

    def forward(self, image_tokens: Tensor, image_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns embeddings of unit length [B, E] and the trunk's states [B, R, D], float32."""
        states_BRD = self.trunk(image_tokens, image_mask)
        counts_BR1 = image_mask[:, :, None].to(states_BRD.dtype)
        scores_BRH = self.attend(states_BRD).float().masked_fill(counts_BR1 == 0, -1e4)
        values_BRHV = self.value(states_BRD).unflatten(-1, (_HEAD_COUNT, -1))
        weights_BRH1 = scores_BRH.softmax(1)[..., None].to(values_BRHV.dtype)
        attended_BD = (weights_BRH1 * values_BRHV).sum(1).flatten(1)
        mean_BD = (states_BRD * counts_BR1).sum(1) / counts_BR1.sum(1).clamp_min(1.0)
        pooled = torch.cat([attended_BD.to(mean_BD.dtype), mean_BD], dim=-1)
        return F.normalize(self.out(pooled).float(), dim=-1), states_BRD
