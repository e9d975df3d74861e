"""How much is thrown at the services: some with every change, much by `make test-fuzz`."""

import os

RUNS_VARIABLE = "TANDEM_FUZZ_RUNS"
SEED_VARIABLE = "TANDEM_FUZZ_SEED"


def run_count(quick: int, full: int) -> int:
    """Returns how many were requested: `full`, a number, or without a value the quick count."""
    asked = os.environ.get(RUNS_VARIABLE, "")
    if asked == "full":
        return full
    return int(asked) if asked else quick


def fuzz_seed() -> int:
    """Returns the seed of all that is random."""
    return int(os.environ.get(SEED_VARIABLE, "1"))
