"""Gives a picture's regions and their boxes: a detector's, or the cells of a grid.

Shapes: B batch, R regions, F width of a region's features, I width of an image token.
"""

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tandem.modeling.config import REGION_WIDTH, JointConfig

BOX_WIDTH: Final = 6
"""x1, y1, x2, y2, width and height, in units of the picture's sides."""

UNREAD: Final = -1e4
"""The logit of what does not count: finite, so that softmax stays so for a caption without words.
"""


def feature_width(inputs: JointConfig) -> int:
    """Returns F: a detector's features without their box, or the whole token of a grid."""
    return REGION_WIDTH - BOX_WIDTH if inputs.image_source == "regions" else inputs.token_width


class RegionInputs(nn.Module):
    """Takes image tokens apart into features and boxes."""

    cells: Tensor

    def __init__(self, inputs: JointConfig) -> None:
        super().__init__()
        self.has_boxes = inputs.image_source == "regions"
        self.feature_width = feature_width(inputs)
        self.register_buffer("cells", _cells(inputs), persistent=False)

    def forward(self, tokens_BRI: Tensor) -> Tensor:
        """Returns the features, float32 [B, R, F]."""
        return tokens_BRI[..., : self.feature_width].float()

    def boxes(self, tokens_BRI: Tensor) -> Tensor:
        """Returns the boxes, float32 [B, R, 6]."""
        if self.has_boxes:
            return tokens_BRI[..., self.feature_width :].float()
        return self.cells.expand(tokens_BRI.shape[0], -1, -1)


def projection(wide: int, width: int) -> nn.Linear:
    """Returns a layer as most papers start theirs: Xavier's weights, and a bias of 0."""
    layer = nn.Linear(wide, width)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def unit(vectors: Tensor) -> Tensor:
    """Returns the vectors of the last axis in unit length; zero stays zero."""
    return F.normalize(vectors, dim=-1)


def mean_of(states_BRF: Tensor, mask_BR: Tensor) -> Tensor:
    """Returns [B, F]: the mean of the positions that count."""
    counts_BR1 = mask_BR[..., None].to(states_BRF.dtype)
    return (states_BRF * counts_BR1).sum(-2) / counts_BR1.sum(-2).clamp_min(1.0)


def _cells(inputs: JointConfig) -> Tensor:
    """Returns the boxes of a grid's cells, row by row, [1, R, 6]; without a grid, the picture's."""
    side = inputs.grid_side
    if not side:
        return torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]).expand(
            1, inputs.image_token_count, BOX_WIDTH
        )
    row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    low = torch.stack([column, row], dim=-1).reshape(1, side * side, 2) / side
    sides = torch.full_like(low, 1.0 / side)
    return torch.cat([low, low + sides, sides], dim=-1)
