"""Makes image tokens of a picture's patches, as ViLT does.

Shapes: B batch, H W pixels, S tokens on a side, P pixels on a patch's side, R = S * S,
D = P * P * 3.
"""

import torch
from torch import Tensor, nn

from tandem.modeling.config import TOKEN_SIZE, JointConfig


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
