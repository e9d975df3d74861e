"""What a model repository's model is, for those who call it."""

from pathlib import Path

from tandem.model_description import ModelDescription
from tandem.model_io.calibration import read_calibration
from tandem.model_io.image import MAX_IMAGE_BYTES, MAX_IMAGE_PIXELS
from tandem.model_io.manifest import Manifest
from tandem.model_io.text import MAX_TEXT_BYTES


def describe_model(repository: Path, manifest: Manifest) -> ModelDescription:
    """Returns the model's name, limits and what was measured of it; errors as read_calibration."""
    calibration = read_calibration(repository, manifest.fingerprint)
    return ModelDescription(
        fingerprint=manifest.fingerprint,
        family=manifest.family,
        precision=manifest.precision,
        embedding_dimension=manifest.embedding_dim,
        max_text_token_count=manifest.max_text_tokens,
        max_text_bytes=MAX_TEXT_BYTES,
        max_image_bytes=MAX_IMAGE_BYTES,
        max_image_pixel_count=MAX_IMAGE_PIXELS,
        probability_calibration=calibration.probability if calibration else None,
        adaptive_depth_rule=calibration.adaptive_depth if calibration else None,
    )
