"""Recognises the demo's model, which cannot read photographs."""

from typing import Final

from tandem.installation import DemoFilesMissing
from tandem.model_io.repository.precision import Precision
from tandem.modeling.checkpoint_files import CheckpointFiles
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.export_manifest import checkpoint_fingerprint

DEMO_NOTE: Final = (
    "serving the demo's model: it knows composed emoji scenes; for photographs: docs/photographs.md"
)


def is_demo(fingerprint: str) -> bool:
    """Returns whether it is the fingerprint of the model that ships with Tandem."""
    try:
        files = CheckpointFiles.read(default_checkpoint())
    except DemoFilesMissing:
        return False
    return fingerprint in {checkpoint_fingerprint(files, each) for each in Precision}
