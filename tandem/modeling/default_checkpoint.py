"""Locates the checkpoint that ships with Tandem."""

from pathlib import Path

from tandem.installation import demo_folder


def default_checkpoint() -> Path:
    """Returns the folder of the demo model, trained by `tandem train default`.

    Raises DemoFilesMissing where only the services are installed.
    """
    return demo_folder("modeling/checkpoints/default", "the demo model")
