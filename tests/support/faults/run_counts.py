"""How often a fault is tried: a few times with every change, many times by `make test-faults`."""

import os

RUNS_VARIABLE = "TANDEM_FAULT_RUNS"
SEED_VARIABLE = "TANDEM_FAULT_SEED"


def run_count(quick: int, full: int) -> int:
    """Returns how many runs were asked for: `full`, a number, or without a word the quick count."""
    asked = os.environ.get(RUNS_VARIABLE, "")
    if asked == "full":
        return full
    return int(asked) if asked else quick


def is_full() -> bool:
    """Says whether the full counts were asked for."""
    return os.environ.get(RUNS_VARIABLE) == "full"
