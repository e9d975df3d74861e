"""Defines the image side of two towers: a trunk over a grid of image tokens, and its pooling.

Shapes: B batch, R image tokens, W token width, D width of the trunk, E embedding width.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from tandem.modeling.config import JointConfig
from tandem.modeling.image_sources.efficientnet import LATE_WIDTH, LateBlocks
from tandem.modeling.joint_encoder import PreNormLayer
from tandem.modeling.towers.attention_pool import AttentionPool

_LAYER_HEAD_COUNT = 4


class GridTrunk(nn.Module):
    """Adapts frozen image tokens: a projection with positions, and one transformer layer.

    Over the early tokens of an EfficientNet-Lite0 it begins with the blocks that follow them,
    unless another trunk's blocks are shared.
    """

    def __init__(self, config: JointConfig, *, shares_late: bool = False) -> None:
        super().__init__()
        width = config.head_width
        self.late = LateBlocks(config) if config.late_side and not shares_late else None
        token_width = LATE_WIDTH if config.late_side else config.token_width
        token_count = config.late_side**2 or config.image_token_count
        self.token_norm = nn.LayerNorm(token_width)
        self.dropout = nn.Dropout(config.head_dropout)
        self.project = nn.Linear(token_width, width)
        self.position = nn.Parameter(torch.randn(token_count, width) * 0.02)
        shape = replace(
            config,
            width=width,
            head_count=_LAYER_HEAD_COUNT,
            feed_forward_width=2 * width,
            dropout=config.head_dropout,
        )
        self.layer = PreNormLayer(shape)
        self.norm = nn.LayerNorm(width)

    def forward(self, image_tokens: Tensor, image_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the states of image tokens, float32 [B, R, D], and their mask, [B, R].

        image_tokens: [B, R, W]; image_mask: int64 [B, R], 1 where a token counts. After the late
        blocks there are fewer tokens, and all of them count.
        """
        tokens_BRW, mask_BR = self.late_tokens(image_tokens, image_mask)
        return self.adapted(tokens_BRW, mask_BR), mask_BR

    def late_tokens(self, image_tokens: Tensor, image_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the output of the late blocks, or the tokens themselves if there are none."""
        tokens_BRW = image_tokens.to(self.token_norm.weight.dtype)
        if self.late is None:
            return tokens_BRW, image_mask
        tokens_BRW = self.late(tokens_BRW)
        return tokens_BRW, torch.ones_like(tokens_BRW[:, :, 0], dtype=torch.int64)

    def adapted(self, tokens_BRW: Tensor, mask_BR: Tensor) -> Tensor:
        """Returns the states from the late tokens, float32 [B, R, D]."""
        normed_BRW = self.token_norm(tokens_BRW.to(self.token_norm.weight.dtype))
        grid_BRD = self.project(self.dropout(normed_BRW)) + self.position[: tokens_BRW.shape[1]]
        states_BRD: Tensor = self.norm(self.layer(grid_BRD, mask_BR.bool()[:, None, None, :]))
        return states_BRD.float()


class GridHead(nn.Module):
    """Pools a trunk's states to an embedding."""

    def __init__(self, config: JointConfig) -> None:
        super().__init__()
        self.trunk = GridTrunk(config)
        self.pool = AttentionPool(config.head_width, config.embedding_dim)

    def forward(self, image_tokens: Tensor, image_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns embeddings of unit length [B, E], float32, and the trunk's states and mask."""
        return self.of_late_tokens(*self.trunk.late_tokens(image_tokens, image_mask))

    def of_late_tokens(self, tokens_BRW: Tensor, mask_BR: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the same for the output of the late blocks."""
        states_BRD = self.trunk.adapted(tokens_BRW, mask_BR)
        return self.pool(states_BRD, mask_BR), states_BRD, mask_BR
