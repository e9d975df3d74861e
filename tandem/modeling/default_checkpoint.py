"""Locates the checkpoint that ships with Tandem."""

from pathlib import Path


def default_checkpoint() -> Path:
    """Returns the folder of the default model, trained by `tandem train default`."""
    return Path(__file__).with_name("checkpoints") / "default"
