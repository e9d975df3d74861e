"""Tests of one group (`xdist_group`) go to one worker, for they share what takes long to start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.xdist_group("alone")
def test_the_scheduler_gets_the_groups(request: pytest.FixtureRequest) -> None:
    """By the end of a test's id, as pytest-xdist does.

    With pytest 9.2 it reported none, silently: each worker started its own Tritons, on the same
    cores, and the suite took half as long again (pytest-xdist's issue 1386).
    """
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("only workers with groups have some to tell of")

    assert request.node.nodeid.endswith("@alone")


_GROUPS = """
import pytest
from tests.support.group_end import at_group_end

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    at_group_end("first", lambda: LOG.open("a").write("stop\\n"))

@pytest.mark.xdist_group("first")
@pytest.mark.parametrize("number", range(3))
def test_shares(shared, number):
    LOG.open("a").write("test\\n")

def test_after():
    LOG.open("a").write("after\\n")
"""


def test_what_a_group_shares_stops_with_it(tmp_path: Path) -> None:
    """Under a worker; without one, tests of other groups come in between, and nothing stops."""
    log = tmp_path / "log"
    program = f"from pathlib import Path\nLOG = Path({str(log)!r})\n{_GROUPS}"
    (tmp_path / "test_groups.py").write_text(program)

    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadgroup"),
            *("-p", "no:cacheprovider", "-p", "tests.support.group_end", "--rootdir", tmp_path),
            tmp_path,
        ],
        cwd=Path(__file__).parents[1],
        env=os.environ | {"PYTEST_ADDOPTS": ""},
        check=True,
        capture_output=True,
    )

    assert log.read_text().split() == ["test"] * 3 + ["stop", "after"]
