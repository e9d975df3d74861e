"""What CI does with a failed test: real pytest runs of small folders."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[1] / ".ci" / "tested"

_FLAKY = """
from pathlib import Path

def test_flaky():
    ran = Path("ran-before")
    was_there = ran.exists()
    ran.touch()
    assert was_there
"""
_PASSING = "def test_passing(): pass\n"
_FAILING = "def test_failing(): assert False\n"
_FOUR_FLAKY = _FLAKY.replace(
    "def test_flaky():",
    "import pytest\n@pytest.mark.parametrize('n', range(4))\ndef test_flaky(n):",
).replace('"ran-before"', 'f"ran-{n}"')


@pytest.mark.parametrize(
    ("tests", "is_passed", "says"),
    [
        (_PASSING, True, "1 passed"),
        (_FLAKY + _PASSING, True, "FLAKY"),
        (_FAILING + _PASSING, False, "test_failing"),
        pytest.param(_FLAKY + _FAILING, False, "test_failing", marks=pytest.mark.slow),
        (_FOUR_FLAKY, False, "4 tests failed: too many"),
        ("import no_such_module\n", False, "no_such_module"),
        ("", False, "before any test did"),
    ],
    ids=["passing", "flaky", "failing", "flaky and failing", "four flaky", "broken", "none"],
)
def test_only_tests_that_fail_twice_fail(
    tmp_path: Path, tests: str, is_passed: bool, says: str
) -> None:
    """A passed second run is reported by name; more than three failures are not repeated."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (tmp_path / ".ci").mkdir()
    shutil.copy(_SCRIPT, tmp_path / ".ci")
    (tmp_path / "Makefile").write_text("test:\n\t.venv/bin/pytest -q\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_small.py").write_text(tests)

    # No other plugin, because each run would load them all.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}

    ended = subprocess.run(
        ["bash", ".ci/tested"],
        cwd=tmp_path,
        env={**os.environ, **plugins},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode == 0) == is_passed, ended.stdout + ended.stderr
    assert says in ended.stdout + ended.stderr
    if says == "FLAKY":
        assert "test_small.py::test_flaky" in ended.stdout.split("FLAKY")[1]
