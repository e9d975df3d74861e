"""Computes image tokens once, with a frozen backbone, so that no later step pays for a convolution.

Shapes: N pictures, H W pixels, R image tokens, D width.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.training.data.pooled_images import HeldImages
from tandem.training.runs.run import Run

Picture = TypeVar("Picture")

_CHUNK_SIZE = 64


class PixelPictures(Generic[Picture]):
    """Pictures whose tokens a backbone makes of their pixels."""

    def __init__(
        self, pictures: Sequence[Picture], pixels_of: Callable[[Picture], NDArray[np.uint8]]
    ) -> None:
        self._pictures, self._pixels_of = pictures, pixels_of

    def pixels(self, number: int) -> NDArray[np.uint8]:
        return self._pixels_of(self._pictures[number])

    @torch.inference_mode()
    def tokens(self, backbone: nn.Module, run: Run, stage: str) -> HeldImages:
        """Returns the tokens of every picture, on the CPU; each process computes its share."""
        count = len(self._pictures)

        def tokens_of_chunk(number: int) -> Tensor:
            start = number * _CHUNK_SIZE
            chunk = self._pictures[start : start + _CHUNK_SIZE]
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
