"""Says where the demo's model serves what it cannot read."""

from contextlib import suppress

from tandem.cli.terminal.console import errors
from tandem.client import Client
from tandem.errors import TandemError
from tandem.modeling.export.demo_model import DEMO_NOTE, is_demo

# What it can read. Their indexes have their names.
_DEMO_CORPORA = ("scenes", "emoji")


def say_if_demo(fingerprint: str, place: str = "") -> None:
    """Prints the note if that model serves, unless `place` is a corpus or index of the demo."""
    if place not in _DEMO_CORPORA and is_demo(fingerprint):
        errors.print(DEMO_NOTE)


def say_if_demo_serves(client: Client, place: str) -> None:
    """Does the same for the server's model."""
    with suppress(TandemError):  # A token may not describe the model, or nothing listens.
        say_if_demo(client.describe_model().fingerprint, place)
