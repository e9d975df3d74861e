"""calibration.json: what was measured of a model, found by its fingerprint alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
from tandem.model_io.repository.calibration import (
    CALIBRATION_NAME,
    Calibration,
    calibration_file,
    carry_calibration,
    read_calibration,
    read_calibrations,
    with_calibration,
    write_calibrations,
)

RULE = AdaptiveDepthRule(
    first_count=8,
    further_count=4,
    intercept=-1.5,
    best_logit_weight=-0.5,
    margin_weight=0.25,
    similarity_gap_weight=-3.0,
    log_rank_weight=-0.125,
    stop_chance=0.01,
)
CALIBRATION = Calibration("bf16", ProbabilityCalibration(0.75, -0.5), RULE)


@pytest.fixture(name="repository")
def _repository(tmp_path: Path) -> Path:
    (tmp_path / "joint_encoder").mkdir()
    return tmp_path


def test_a_calibration_is_read_by_fingerprint(repository: Path) -> None:
    unmeasured = Calibration("fp32", None, None)

    write_calibrations(calibration_file(repository), [CALIBRATION, unmeasured])

    assert calibration_file(repository) == repository / "calibration.json"
    assert read_calibration(repository, "bf16") == CALIBRATION
    assert read_calibration(repository, "fp32") == unmeasured


def test_another_model_has_none(repository: Path) -> None:
    assert read_calibration(repository, "bf16") is None

    write_calibrations(calibration_file(repository), [CALIBRATION])

    assert read_calibration(repository, "int8") is None


def test_a_new_measurement_replaces_the_old_one() -> None:
    other, anew = replace(CALIBRATION, fingerprint="fp32"), Calibration("bf16", None, RULE)

    assert with_calibration([CALIBRATION, other], anew) == [other, anew]


@pytest.mark.parametrize("content", ["{", '{"format_version": 2}'])
def test_a_damaged_file_is_named(repository: Path, content: str) -> None:
    path = calibration_file(repository)
    path.write_text(content)

    with pytest.raises(ValueError, match=r"calibration\.json"):
        read_calibrations(path)


def test_an_unusable_calibration_is_not_written(repository: Path) -> None:
    path = calibration_file(repository)
    write_calibrations(path, [CALIBRATION])

    with pytest.raises(ValueError, match="turn the order round"):
        write_calibrations(
            path, [replace(CALIBRATION, probability=ProbabilityCalibration(scale=-1.0))]
        )

    assert read_calibrations(path) == (CALIBRATION,)


def test_an_export_gets_its_own_of_a_checkpoints(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_calibrations(
        folder / CALIBRATION_NAME, [CALIBRATION, replace(CALIBRATION, fingerprint="fp32")]
    )

    carry_calibration(folder, repository, "bf16")
    written = calibration_file(repository).stat().st_mtime_ns
    carry_calibration(folder, repository, "bf16")

    assert read_calibrations(calibration_file(repository)) == (CALIBRATION,)
    assert calibration_file(repository).stat().st_mtime_ns == written

    carry_calibration(folder, repository, "int8")

    assert not calibration_file(repository).exists()


def test_a_damaged_calibration_of_an_export_is_replaced(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write_calibrations(folder / CALIBRATION_NAME, [CALIBRATION])
    calibration_file(repository).write_text("{")

    carry_calibration(folder, repository, "bf16")

    assert read_calibration(repository, "bf16") == CALIBRATION
