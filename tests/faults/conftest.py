"""Sets the seeds and run counts of the fault tests."""

import os
import random

import pytest

from tests.support.faults.run_counts import RUNS_VARIABLE, SEED_VARIABLE, run_count

_START_SECONDS = 120


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker with the number of runs of a fault."""
    config.addinivalue_line(
        "markers",
        "runs(quick, full, seconds_each): how often the test tries its fault, in the usual run and "
        "by `make test-faults`, and how long one try may take at most",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test the time that its runs may take."""
    for item in items:
        if marker := item.get_closest_marker("runs"):
            count = run_count(marker.kwargs["quick"], marker.kwargs["full"])
            limit_seconds = _START_SECONDS + count * marker.kwargs["seconds_each"]
            item.add_marker(pytest.mark.timeout(limit_seconds))


@pytest.fixture
def runs(request: pytest.FixtureRequest) -> int:
    """Returns how often to try the fault."""
    marker = request.node.get_closest_marker("runs")
    return run_count(marker.kwargs["quick"], marker.kwargs["full"])


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Makes all random choices; its seed is new in each run and printed with a failure."""
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    runs = os.environ.get(RUNS_VARIABLE)
    variables = f"{SEED_VARIABLE}={seed}" + (f" {RUNS_VARIABLE}={runs}" if runs else "")
    print(f"repeat with: {variables} pytest -n 0 -s '{request.node.nodeid}'")
    return random.Random(seed)
