"""Computes image tokens once, with a frozen backbone, so that no later step pays for a convolution.

Shapes: N pictures, H W pixels, R image tokens, D width.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.lab.training.data.pooled_images import HeldImages
from tandem.lab.training.runs.run import Run

_CHUNK_SIZE = 64


class PixelPictures:
    """Pictures whose tokens a backbone makes of their pixels."""

    def __init__(self, count: int, pixels_of: Callable[[int], NDArray[np.uint8]]) -> None:
        """`pixels_of` gives a picture's uint8 [H, W, 3] by its number."""
        self._count, self._pixels_of = count, pixels_of

    @torch.inference_mode()
    def tokens(self, backbone: nn.Module, run: Run, stage: str) -> HeldImages:
        """Returns the tokens of every picture, on the CPU; each process computes its share."""
        count = self._count

        def tokens_of_chunk(number: int) -> Tensor:
            start = number * _CHUNK_SIZE
            chunk = range(start, min(start + _CHUNK_SIZE, count))
            pixels_BHWC = torch.from_numpy(np.stack([self._pixels_of(each) for each in chunk]))
            with run.compute.autocast():
                tokens_BRD: Tensor = backbone(run.compute.put(pixels_BHWC)).cpu()
            if number % 10 == 0:
                run.progress(stage, start, count, "")
            return tokens_BRD

        run.progress(stage, 0, count, "")
        tokens_NRD = torch.cat(run.processes.shared(-(-count // _CHUNK_SIZE), tokens_of_chunk))
        run.progress(stage, count, count, "")
        return HeldImages(tokens_NRD)
