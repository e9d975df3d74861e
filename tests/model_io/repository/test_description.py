"""A model is described by its manifest, the preprocessors' limits and what was measured of it."""

from pathlib import Path

import pytest

from tandem.contract.model_description import (
    AdaptiveDepthRule,
    ModelDescription,
    ProbabilityCalibration,
)
from tandem.model_io.pictures.image import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from tandem.model_io.repository.calibration import Calibration, calibration_file, write_calibrations
from tandem.model_io.repository.followed_version import describe_model
from tandem.model_io.texts.text import MAX_TEXT_BYTES
from tests.support.repository.made_manifest import made_manifest, text_rules

MANIFEST = made_manifest(
    fingerprint="this-model",
    precision="bf16",
    embedding_dim=192,
    text=text_rules(64),
)
RULE = AdaptiveDepthRule(
    first_count=5,
    further_count=5,
    intercept=1.0,
    best_logit_weight=-1.0,
    margin_weight=-0.5,
    similarity_gap_weight=-2.0,
    log_rank_weight=0.1,
    stop_chance=0.02,
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path


def test_a_model_that_nothing_was_measured_of(repository: Path) -> None:
    assert describe_model(repository, MANIFEST) == ModelDescription(
        fingerprint="this-model",
        family="joint",
        precision="bf16",
        embedding_dimension=192,
        max_text_token_count=64,
        max_text_bytes=MAX_TEXT_BYTES,
        max_image_bytes=MAX_IMAGE_BYTES,
        max_image_pixel_count=MAX_IMAGE_PIXELS,
    )


def test_measurements_belong_to_their_model(repository: Path) -> None:
    calibrations = [
        Calibration("another", ProbabilityCalibration(9.0, 9.0), None),
        Calibration("this-model", ProbabilityCalibration(0.5, -1.0), RULE),
    ]
    write_calibrations(calibration_file(repository), calibrations)

    model = describe_model(repository, MANIFEST)

    assert model.probability_calibration == ProbabilityCalibration(0.5, -1.0)
    assert model.adaptive_depth_rule == RULE
