"""Image tokens, computed once by a frozen backbone: what follows never pays for a convolution.

Shapes: N pictures, H W pixels, R image tokens, D width.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tandem.training.run import Run

Picture = TypeVar("Picture")

_CHUNK_SIZE = 64


@torch.inference_mode()
def image_tokens(
    backbone: nn.Module,
    pictures: Sequence[Picture],
    pixels_of: Callable[[Picture], NDArray[np.uint8]],
    run: Run,
    stage: str,
) -> Tensor:
    """Returns the image tokens of every picture, in order, float16 [N, R, D] on the CPU.

    `pixels_of` gives a picture's uint8 [H, W, 3]; what it raises is raised. Each process computes
    its share. `stage` is what progress is told under.
    """

    def tokens_of_chunk(number: int) -> Tensor:
        start = number * _CHUNK_SIZE
        chunk = pictures[start : start + _CHUNK_SIZE]
        pixels_BHWC = torch.from_numpy(np.stack([pixels_of(picture) for picture in chunk]))
        with run.compute.autocast():
            tokens_BRD: Tensor = backbone(run.compute.put(pixels_BHWC)).cpu()
        if number % 10 == 0:
            run.progress(stage, start, len(pictures), "")
        return tokens_BRD

    run.progress(stage, 0, len(pictures), "")
    chunk_count = -(-len(pictures) // _CHUNK_SIZE)
    tokens_NRD = torch.cat(run.processes.shared(chunk_count, tokens_of_chunk))
    run.progress(stage, len(pictures), len(pictures), "")
    return tokens_NRD
