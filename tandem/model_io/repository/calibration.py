"""Stores the measurements of a model: match probabilities, and when a rerank may stop.

The file is `calibration.json`, next to a checkpoint and next to the manifest of its export. It has
a calibration for each fingerprint, because each precision of a checkpoint is a different model.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Final

from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
from tandem.platform.files.json_object import from_fields, read_object, shown
from tandem.platform.files.whole_file import write_text_whole

CALIBRATION_NAME: Final = "calibration.json"
_FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Describes the model with this fingerprint; None means not measured."""

    fingerprint: str
    probability: ProbabilityCalibration | None
    adaptive_depth: AdaptiveDepthRule | None
    text_similarity: ProbabilityCalibration | None = None
    """Of the similarity of two texts."""

    def check(self) -> None:
        """Raises ValueError for numbers of a fit that failed."""
        for part in (self.probability, self.adaptive_depth, self.text_similarity):
            numbers = astuple(part) if part is not None else ()
            if not all(abs(value) <= sys.float_info.max for value in numbers):  # also false for NaN
                raise ValueError(f"{part} has a number that is not finite")
        for scaling in (self.probability, self.text_similarity):
            if scaling is not None and scaling.scale <= 0:
                raise ValueError(f"scale {scaling.scale} would turn the order round")


@dataclass(frozen=True, slots=True)
class _CalibrationFile:
    format_version: int
    calibrations: tuple[Calibration, ...]


def read_calibration(repository: Path, fingerprint: str) -> Calibration | None:
    """Returns the calibration of the model repository's model; None if it was not measured.

    Calibrations of other fingerprints do not apply. Raises ValueError naming a damaged file.
    """
    return calibration_in(calibration_file(repository), fingerprint)


def calibration_file(repository: Path) -> Path:
    return repository / CALIBRATION_NAME


def calibration_in(path: Path, fingerprint: str) -> Calibration | None:
    """Returns a file's calibration of one fingerprint; errors as read_calibration."""
    found = (each for each in read_calibrations(path) if each.fingerprint == fingerprint)
    return next(found, None)


def read_calibrations(path: Path) -> Sequence[Calibration]:
    """Returns all calibrations of a file, none if it is missing; errors as read_calibration."""
    if not path.exists():
        return ()
    try:
        content = read_object(path)
        found = content.get("format_version")
        if found != _FORMAT_VERSION:
            raise ValueError(f"format {shown(found)} instead of {_FORMAT_VERSION}")
        return from_fields(_CalibrationFile, content).calibrations
    except ValueError as error:
        raise ValueError(f"{path} is not a calibration of this version: {error}") from error


def write_calibrations(path: Path, calibrations: Sequence[Calibration]) -> None:
    """Writes the file atomically; raises ValueError for unusable numbers."""
    for calibration in calibrations:
        calibration.check()
    content = asdict(_CalibrationFile(_FORMAT_VERSION, tuple(calibrations)))
    write_text_whole(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def with_calibration(
    calibrations: Sequence[Calibration], calibration: Calibration
) -> list[Calibration]:
    """Returns the list, in which this calibration replaces that of its fingerprint."""
    others = [each for each in calibrations if each.fingerprint != calibration.fingerprint]
    return [*others, calibration]


def carry_calibration(checkpoint_folder: Path, repository: Path, fingerprint: str) -> None:
    """Copies the checkpoint's calibration of the fingerprint to the repository, or removes that.

    An equal file is not rewritten. Errors as read_calibration, for the checkpoint's file.
    """
    path = calibration_file(repository)
    wanted = calibration_in(checkpoint_folder / CALIBRATION_NAME, fingerprint)
    if wanted is None:
        path.unlink(missing_ok=True)
        return
    try:
        is_there = tuple(read_calibrations(path)) == (wanted,)
    except ValueError:
        is_there = False
    if not is_there:
        write_calibrations(path, [wanted])
