"""How long the locks are tried: a little with every change, in full by `make test-security`."""

import os

RUNS_VARIABLE = "TANDEM_SECURITY_RUNS"


def is_full() -> bool:
    """Says whether the full counts were requested."""
    return os.environ.get(RUNS_VARIABLE) == "full"


def run_count(quick: int, full: int) -> int:
    """Returns how many runs were requested."""
    return full if is_full() else quick
