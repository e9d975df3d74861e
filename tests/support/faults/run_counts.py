"""Decides how often a fault is tried: a few times by default, many by `make test-faults`."""

import os

RUNS_VARIABLE = "TANDEM_FAULT_RUNS"
SEED_VARIABLE = "TANDEM_FAULT_SEED"


def run_count(quick: int, full: int) -> int:
    """Returns the requested number of runs: `full`, a number, or by default the quick count."""
    asked = os.environ.get(RUNS_VARIABLE, "")
    if asked == "full":
        return full
    return int(asked) if asked else quick


def is_full() -> bool:
    """Returns whether the full counts were requested."""
    return os.environ.get(RUNS_VARIABLE) == "full"
