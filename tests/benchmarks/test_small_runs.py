"""Every benchmark that has no test of its own still runs, in small, and prints figures."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.xdist_group("triton-model-io")


@by_make_test_benchmarks
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [
        "bench_attention.py --rounds 2",
        "bench_batching.py --seconds 0.5",
        "bench_caches.py --queries 4",
        "bench_calibration.py --scenes 40 --queries 8",
        "bench_cold_start.py --starts 1 --scenes 40",
        "bench_decode.py",
        "bench_exporter.py --calls 50 --rounds 1",
        "bench_filtered_recall.py --rows 21000 --queries 20 --dimension 64",
        "bench_filters.py --rows 20000 --rounds 1",
        "bench_ingest.py --pictures 64 --batches 1,2 --rounds 1",
        "bench_instances.py --seconds 1",
        "bench_memory.py --rounds 1 --requests 4",
        "bench_overload.py --scenes 40 --seconds 3 --step-seconds 2",
        "bench_priorities.py --seconds 1",
        "bench_training.py --repeats 1 --intervals 1",
        "bench_watching.py --searches 20 --rounds 1 --scenes 20",
    ],
)
def test_it_runs_to_its_end(command: str) -> None:
    """What a benchmark asks for can come to be refused, and nobody sees before its next run."""
    script, *arguments = command.split()

    ran = subprocess.run(
        [sys.executable, f"benchmarks/{script}", *arguments],
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
        "bench_infinity.py",  # makes an environment of a peer's, minutes of downloads
    }
    tests = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(__file__).parent.iterdir()
        if path.suffix == ".py"
    )

    scripts = {path.name for path in (ROOT / "benchmarks").glob("bench_*.py")}

    assert {name for name in scripts - elsewhere if name not in tests} == set()
