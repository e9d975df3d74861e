"""What was measured of a model and goes with it: match probabilities, and when a rerank may stop.

One file, `calibration.json`, beside a checkpoint and beside the manifest of its export. It holds a
calibration for each fingerprint, since precisions of one checkpoint are different models.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
from tandem.model_io.json_object import from_fields, read_object, shown, within
from tandem.model_io.manifest import JOINT_ENCODER
from tandem.model_io.whole_file import write_text_whole

CALIBRATION_NAME: Final = "calibration.json"
_FORMAT_VERSION: Final = 1
_MAX_COUNT: Final = 1_000_000
_Part = TypeVar("_Part", ProbabilityCalibration, AdaptiveDepthRule)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of the model with this fingerprint; None is what was not measured."""

    fingerprint: str
    probability: ProbabilityCalibration | None
    adaptive_depth: AdaptiveDepthRule | None

    def check(self) -> None:
        """Raises ValueError unless the numbers can be used."""
        for part in (self.probability, self.adaptive_depth):
            numbers = astuple(part) if part is not None else ()
            if not all(abs(value) <= sys.float_info.max for value in numbers):  # of NaN neither
                raise ValueError(f"{part} has what is no finite number")
        if self.probability is not None and self.probability.scale <= 0:
            raise ValueError(f"scale {self.probability.scale} would turn the order round")
        rule = self.adaptive_depth
        if rule is not None:
            within("first_count", rule.first_count, 1, _MAX_COUNT)
            within("further_count", rule.further_count, 1, _MAX_COUNT)


def read_calibration(repository: Path, fingerprint: str) -> Calibration | None:
    """Returns what was measured of the model repository's model; None where nothing was.

    A file of other fingerprints says nothing of this model. Raises ValueError naming a file that is
    damaged.
    """
    return calibration_in(calibration_file(repository), fingerprint)


def calibration_file(repository: Path) -> Path:
    """Returns where a model repository's lies: beside the manifest."""
    return repository / JOINT_ENCODER / CALIBRATION_NAME


def calibration_in(path: Path, fingerprint: str) -> Calibration | None:
    """Returns a file's calibration of one fingerprint; errors as read_calibration."""
    found = (each for each in read_calibrations(path) if each.fingerprint == fingerprint)
    return next(found, None)


def read_calibrations(path: Path) -> list[Calibration]:
    """Returns all of a file, none where there is no file; errors as read_calibration."""
    if not path.exists():
        return []
    try:
        content = read_object(path)
        told = content.get("format_version")
        if told != _FORMAT_VERSION:
            raise ValueError(f"format {shown(told)} instead of {_FORMAT_VERSION}")
        calibrations = content.get("calibrations")
        if not isinstance(calibrations, list):
            raise ValueError(f"calibrations is {shown(calibrations)}, not a list")
        return [_calibration(fields) for fields in calibrations]
    except ValueError as error:
        raise ValueError(f"{path} is no calibration of this version: {error}") from error


def write_calibrations(path: Path, calibrations: Sequence[Calibration]) -> None:
    """Writes the file whole or not at all; raises ValueError for numbers that cannot be used."""
    for calibration in calibrations:
        calibration.check()
    content = {
        "format_version": _FORMAT_VERSION,
        "calibrations": [asdict(calibration) for calibration in calibrations],
    }
    write_text_whole(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def with_calibration(
    calibrations: Sequence[Calibration], calibration: Calibration
) -> list[Calibration]:
    """Returns them with this one in the place of its fingerprint's."""
    others = [each for each in calibrations if each.fingerprint != calibration.fingerprint]
    return [*others, calibration]


def carry_calibration(checkpoint_folder: Path, repository: Path, fingerprint: str) -> None:
    """Makes the repository's file what the checkpoint's says of this fingerprint, or removes it.

    What is there already is not written again. Errors as read_calibration, for the checkpoint's.
    """
    path = calibration_file(repository)
    wanted = calibration_in(checkpoint_folder / CALIBRATION_NAME, fingerprint)
    if wanted is None:
        path.unlink(missing_ok=True)
        return
    try:
        is_there = read_calibrations(path) == [wanted]
    except ValueError:
        is_there = False
    if not is_there:
        write_calibrations(path, [wanted])


def _calibration(fields: object) -> Calibration:
    if not isinstance(fields, dict):
        raise ValueError(f"a calibration is {shown(fields)}, not an object")
    told = from_fields(_Told, fields)
    calibration = Calibration(
        told.fingerprint,
        _part(ProbabilityCalibration, "probability", told.probability),
        _part(AdaptiveDepthRule, "adaptive_depth", told.adaptive_depth),
    )
    calibration.check()
    return calibration


@dataclass(frozen=True, slots=True)
class _Told:
    """A calibration as its file has it."""

    fingerprint: str
    probability: Mapping[str, Any] | None
    adaptive_depth: Mapping[str, Any] | None


def _part(kind: type[_Part], name: str, fields: Mapping[str, Any] | None) -> _Part | None:
    try:
        return None if fields is None else from_fields(kind, fields)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
