"""Describes the model of a repository to callers."""

from pathlib import Path

from tandem.contract.model_description import ModelDescription
from tandem.pictures.image import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from tandem.repository.calibration import read_calibration
from tandem.repository.manifest import Manifest
from tandem.repository.model_version import (
    FIRST_VERSION,
    ModelVersion,
    version_calibration,
    version_folder,
)
from tandem.texts.text import MAX_TEXT_BYTES


def describe_model(
    repository: Path, manifest: Manifest, version: int = FIRST_VERSION
) -> ModelDescription:
    """Returns the name, limits and calibration of a version of the model.

    Errors as read_calibration, and as ModelVersion.read.
    """
    if version == FIRST_VERSION:
        precision = manifest.precision
        calibration = read_calibration(repository, manifest.fingerprint)
    else:
        precision = ModelVersion.read(version_folder(repository, version)).precision
        calibration = version_calibration(repository, version)
    return ModelDescription(
        fingerprint=manifest.fingerprint,
        family=manifest.family,
        precision=precision,
        embedding_dimension=manifest.embedding_dim,
        max_text_token_count=manifest.text.max_tokens,
        max_text_bytes=MAX_TEXT_BYTES,
        max_image_bytes=MAX_IMAGE_BYTES,
        max_image_pixel_count=MAX_IMAGE_PIXELS,
        probability_calibration=calibration.probability if calibration else None,
        adaptive_depth_rule=calibration.adaptive_depth if calibration else None,
        version=version,
        region_feature_width=manifest.regions.feature_width if manifest.regions else 0,
        max_region_count=manifest.regions.max_regions if manifest.regions else 0,
    )
