"""Defines what a run reads: captioned pictures of a training and a dev split, of any corpus.

Shapes: N pictures, B of a chunk, H W pixels, R image tokens, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from tandem.lab.training.data.pair_pool import PairSource
from tandem.lab.training.data.pooled_images import HeldImages, ReadImages
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.run import Run
from tandem.lab.training.sources.frozen_pictures import FrozenPictures
from tandem.lab.training.stages.backbone_lessons import BackboneLesson
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures

_CHUNK_SIZE = 64


class PixelPictures:
    """Pictures whose tokens a frozen backbone makes of their pixels, once for all steps."""

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


Pictures = PixelPictures | FrozenPictures | ReadImages
"""The pictures of one split, by number; `tokens` gives their image tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What one run trains on and is measured on."""

    recipe: Recipe
    """The run's recipe, with the digest and the size of what was read."""
    pairs: PairSource
    train: Pictures
    """Numbered as `pairs` numbers them."""
    dev: Pictures
    dev_captions: Sequence[str]
    """One caption of each dev picture."""
    lesson: Callable[[JointModel, Tokenizer, Run], BackboneLesson | None]
    """Returns what teaches the image backbone before the rounds; None if it has nothing to learn.
    """
    skipped_counts: Mapping[str, int]
    """Records that were skipped, by fault."""
    trained_pictures: TrainedPictures | None = None
    """Digests of the training pictures' files; None where no files are read."""

    def all_trained_pictures(self, init: Path) -> TrainedPictures | None:
        """Returns the training pictures, with those of the checkpoint that the run begins with."""
        earlier = TrainedPictures.read(init) if self.recipe.begins_with_checkpoint else None
        return self.trained_pictures.joined(earlier) if self.trained_pictures else earlier
