"""Defines what a run reads: captioned pictures of a training and a dev split, of any corpus."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from torch import nn

from tandem.lab.training.data.pair_pool import PairSource
from tandem.lab.training.data.pooled_images import PooledImages
from tandem.lab.training.recipes.recipe import Recipe
from tandem.lab.training.runs.run import Run
from tandem.lab.training.stages.backbone_stage import BackboneLesson
from tandem.modeling.joint_model import JointModel
from tandem.modeling.trained_pictures import TrainedPictures


class Pictures(Protocol):
    """The pictures of one split, by number."""

    def tokens(self, backbone: nn.Module, run: Run, stage: str) -> PooledImages:
        """Returns their image tokens; `stage` names the work to the run's progress."""
        ...


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
