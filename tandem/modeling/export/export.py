"""Exports checkpoints of ours as the two models that Triton loads."""

from pathlib import Path

from torch import nn

from tandem.model_io.repository.calibration import carry_calibration
from tandem.model_io.repository.manifest import (
    IMAGE_BACKBONE,
    JOINT_ENCODER,
    TOKENIZER_NAME,
    Manifest,
)
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.export.export_manifest import export_manifest
from tandem.modeling.export.installation import install_model
from tandem.modeling.export.lowered import lowered
from tandem.modeling.image_sources.image_tokens import NoPixels
from tandem.modeling.joint_model import JointModel


def export_model(
    checkpoint_folder: Path, repository: Path, precision: Precision, *, with_pt2: bool = False
) -> Manifest:
    """Writes model files, config.pbtxt and manifest.json into `repository`; returns the manifest.

    Copies the checkpoint's calibration of this precision, if it has one. Errors as install_model,
    and ValueError for a folder that is not a checkpoint. A model of regions has no image backbone.
    """
    checkpoint = load_checkpoint(checkpoint_folder)
    manifest = export_manifest(checkpoint.files, precision, {})
    return install_model(
        modules_of(lowered(checkpoint.model, precision)),
        manifest,
        {TOKENIZER_NAME: checkpoint.tokenizer},
        repository,
        with_pt2=with_pt2,
        before_manifest=lambda: carry_calibration(
            checkpoint_folder, repository, manifest.fingerprint
        ),
    )


def modules_of(model: JointModel) -> dict[str, nn.Module]:
    """Returns the module of each Triton model."""
    if isinstance(model.image_backbone, NoPixels):
        return {JOINT_ENCODER: model.joint_encoder}
    return {IMAGE_BACKBONE: model.image_backbone, JOINT_ENCODER: model.joint_encoder}
