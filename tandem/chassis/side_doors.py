"""The doors of a service that no user needs: its description of itself, and its metrics."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from tandem.chassis.settings import SettingsError, load, setting


@dataclass(frozen=True, kw_only=True, slots=True)
class SideDoors:
    """Which of them are open. Health and probes always are: a platform cannot do without."""

    reflection: bool = setting(
        "whether callers may ask for the services and their messages", default=True
    )
    metrics: bool = setting(
        "whether /metrics answers on the metrics' port; the probes there do in any case",
        default=True,
    )


def load_side_doors_or_exit() -> SideDoors:
    """Returns what DOOR_… says; for `__main__` alone.

    Where the settings are at fault, says so on stderr and exits 2.
    """
    try:
        return load(SideDoors, "DOOR_", os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
