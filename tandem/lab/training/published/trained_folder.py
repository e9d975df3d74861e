"""Writes what a run makes of a published folder: one of the same family, which is read alike."""

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file

from tandem.lab.training.published.learner import PublishedLearner
from tandem.modeling.checkpoint import WeightsNotFinite
from tandem.modeling.checkpoint_files import TRAINING, WEIGHTS
from tandem.modeling.stored_weights import not_finite
from tandem.modeling.trained_pictures import FILE_NAME as TRAINED_PICTURES
from tandem.modeling.trained_pictures import TrainedPictures
from tandem.platform.files.whole_file import write_text_whole, write_whole

_OF_OTHERS: Final = ("*.json", "*.txt", "*.model", "README.md", "LICENSE*", "training_args.bin")
"""Files next to the weights: configuration, tokenizer, processor, licence."""
_OF_RUNS: Final = (
    WEIGHTS,
    TRAINING,
    TRAINED_PICTURES,
    "run_state.*",
    "loss_curve.*",
    "tensorboard",
)


def check_own_folder(folder: Path, source: Path) -> None:
    """Raises ValueError for a folder with files of another model, which would be read with it."""
    copied = {path.name for path in _copied(source)}
    known = {path for pattern in _OF_RUNS for path in folder.glob(pattern)}
    others = sorted(p.name for p in folder.glob("[!.]*") if p not in known and p.name not in copied)
    if others or folder.resolve() == source.resolve():
        what = f"has {', '.join(others)}" if others else "is what the run begins with"
        raise ValueError(f"{folder} {what}, which would be mixed with it; choose another --folder")


def save_trained_folder(
    folder: Path,
    learner: PublishedLearner,
    training: Mapping[str, Any],
    pictures: TrainedPictures | None,
) -> None:
    """Writes the model's weights in float32, under the names in which they were read.

    Next to them lie the source's configuration, tokenizer and processor. Raises WeightsNotFinite,
    having written nothing, for a weight that is NaN or infinite.
    """
    weights = {
        name: each.detach().cpu().clone() for name, each in learner.published_weights().items()
    }
    if names := not_finite(weights):
        raise WeightsNotFinite(f"weights are NaN or infinite: {names}; nothing was saved")
    folder.mkdir(parents=True, exist_ok=True)
    for path in _copied(learner.folder):
        write_whole(folder / path.name, partial(shutil.copyfile, path))
    if pictures is not None:
        write_whole(folder / TRAINED_PICTURES, pictures.write)
    write_whole(folder / WEIGHTS, lambda path: save_file(weights, path, {"format": "pt"}))
    write_text_whole(folder / TRAINING, json.dumps(training, indent=2, sort_keys=True) + "\n")


def _copied(source: Path) -> Iterator[Path]:
    for pattern in _OF_OTHERS:
        for path in sorted(source.glob(pattern)):
            if path.name != TRAINING and not path.name.endswith(".index.json"):
                yield path
