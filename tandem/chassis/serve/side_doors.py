"""Configures reflection and metrics, which users do not need."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from tandem.chassis.settings import SettingsError, load, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class SideDoors:
    """Turns reflection and metrics on or off. Health and probes are always on."""

    reflection: bool = setting("whether gRPC reflection is on", default=True)
    metrics: bool = setting(
        "whether /metrics is on; the probes on its port always are",
        default=True,
    )


def load_side_doors_or_exit() -> SideDoors:
    """Returns the DOOR_… settings; for `__main__` only.

    Exits 2 with a message if they are invalid.
    """
    try:
        return load(SideDoors, "DOOR_", os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
