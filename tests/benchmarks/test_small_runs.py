"""Every benchmark that has no test of its own still runs, in small, and prints figures."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [
        "calibration --scenes 40 --queries 8",
        "engine --scenes 24 --queries 6",
        "gateway --scenes 12 --searches 5",
        "ingest --pictures 64 --batches 1,2 --rounds 1",
        "neighbour_stage --size 4000 --queries 2 --pools 64 --faiss-type IVF16,SQ8 --nprobe 4",
        "overload --scenes 40 --seconds 3 --step-seconds 2",
        "overload --door http --scenes 40 --seconds 3 --step-seconds 2",
        "training --repeats 1 --intervals 1",
    ],
)
def test_it_runs_to_its_end(command: str) -> None:
    """What a benchmark asks for can become invalid, and no one sees it before its next run."""
    name, *arguments = command.split()

    ran = subprocess.run(
        [sys.executable, "-m", f"benchmarks.bench.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert any(line.startswith(("{", "[", "| ")) for line in ran.stdout.splitlines()), "no figures"


def test_none_is_forgotten() -> None:
    """A benchmark is run here, or has a test of its own, or is named below with its reason."""
    elsewhere = {
        "infinity",  # makes an environment of a peer's, minutes of downloads
    }
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parent.iterdir()
        if path.suffix == ".py"
    )

    names = {path.stem for path in (ROOT / "benchmarks" / "bench").glob("*.py")} - {"__init__"}

    assert len(names) > 5
    assert {
        name
        for name in names - elsewhere
        if f"benchmarks.bench.{name}" not in tests and f'"{name} ' not in tests
    } == set()
