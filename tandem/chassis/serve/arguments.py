"""Reads the command line of a service, which has tables of its settings and metrics."""

import os
import sys
from collections.abc import Mapping, Sequence

from tandem.chassis.settings import SettingsClass, SettingsError, exiting_on_faults, load, table
from tandem.chassis.telemetry import metrics


def load_or_exit(
    settings_class: type[SettingsClass],
    prefix: str,
    arguments: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SettingsClass:
    """Returns the process's settings; for `__main__` only.

    With `--settings` or `--metrics`, prints their table and exits 0. Exits 2 with a message if
    settings are invalid.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    tables = {"--settings": lambda: table(settings_class, prefix), "--metrics": metrics.table}
    if len(arguments) == 1 and arguments[0] in tables:
        print(tables[arguments[0]]())
        raise SystemExit(0)
    with exiting_on_faults():
        if arguments:
            raise SettingsError(
                f"unknown arguments: {' '.join(arguments)}; known: --settings, --metrics"
            )
        return load(settings_class, prefix, os.environ if environ is None else environ)
