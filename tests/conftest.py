"""What every test stands on."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tandem.platform.child_processes.child_environment import loopback_spared
from tests.support import grid

# Times on a shared machine say nothing about the code, so no example has a deadline of its own.
settings.register_profile("tandem", deadline=None, derandomize=True)
settings.load_profile("tandem")

# Tests call loopback by bare channels and urllib too, on machines behind a proxy as elsewhere.
for _variable in ("no_proxy", "NO_PROXY"):
    os.environ[_variable] = loopback_spared(os.environ.get(_variable, ""))

# Records of the jobs that tests run: `tandem ingest` keeps them in the user's folder.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="tandem-jobs-")

# Workers share the cores, and so do the processes that tests start. A second thread of OpenMP's in
# torch, FAISS or NumPy then mostly waits for the first, and spins while it waits: without this,
# `tandem models add` of the shipped model takes four times the processor time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background job ignores Ctrl-C, and nohup the end of its terminal. Children inherit both,
# and tests send them these signals.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Of torch, before each test and its fixtures. Over random weights that differed from run to run, a
# comparison with a tolerance failed once in hundreds of runs.
_SEED = int(os.environ.get("TANDEM_TEST_SEED", "0"))

# Of a value in a test's id. One of 8 MiB made an id of 32.
_ID_LENGTH = 60

# Of young objects, and of collections of the younger ones before one of the older: Python's are
# 700, 10 and 10, with which full collections took a twentieth of the tests' CPU.
_GARBAGE_THRESHOLDS = (2_000, 10, 25)

_TEST_PATHS = ["tests"]

pytest_plugins = [
    "tests.support.group_end",
    "tests.support.once_a_session",
    "tests.support.triton.tiny_triton",
    "tests.support.local.tiny_stack",
]


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker of tests that take minutes, and shares collection among the workers."""
    config.addinivalue_line(
        "markers", "long: begins before the others, so that no core waits for it at the end"
    )
    if (worker := getattr(config, "workerinput", None)) and config.args == _TEST_PATHS:
        config.args[:] = _rotated(int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def pytest_report_header() -> str:
    """Names the seed with which a failed row of a grid runs again."""
    if grid.IS_FULL:
        return "grids: every row"
    return f"grids: a sample, TANDEM_GRID_SEED={grid.SEED}"


def _rotated(number: int, worker_count: int) -> list[str]:
    """Returns the folders and files of tests, of which each worker begins with others.

    Each compiles a part of 600 files, which takes ten seconds, and reads what others have compiled.
    """
    here = Path(__file__).parent
    parts = [
        f"{here.name}/{path.name}"
        for path in sorted(here.iterdir())
        if path.match("test_*.py") or (path.is_dir() and path.name[0].isalpha())
    ]
    start = len(parts) * number // worker_count
    return [*parts[start:], *parts[:start]]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shortens the id of a long value, which would be sent between processes for each report."""
    if not isinstance(val, str | bytes) or len(val) <= _ID_LENGTH:
        return None
    start = val[:_ID_LENGTH]
    text = start if isinstance(start, str) else start.decode("latin-1")
    return f"{text}... {len(val)}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Sets the 650,000 objects of all tests aside, which a full garbage collection walks.

    What collection makes stays, so that there is no garbage until it ends.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GARBAGE_THRESHOLDS)
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts long tests first; workers take single tests in this order, which all must have."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parts)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seeds the weights of models that tests make, so that a test never depends on its order."""
    # A test that imports torch first has torch's own seed, which is always the same.
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(_SEED)


@pytest.fixture(autouse=True)
def _default_logging() -> Iterator[None]:
    """Leaves no test the logging of an earlier one: an engine's lets warnings alone through."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
