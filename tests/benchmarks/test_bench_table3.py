"""benchmarks/bench/table3.py runs, and what it prints is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(300)
def test_a_small_run_prints_every_figure(tmp_path: Path) -> None:
    """Two small galleries of one narrow layer; all items are compared, so recall is whole."""
    command = [sys.executable, "-m", "benchmarks.bench.table3", "--work", str(tmp_path)]
    shape = ["--layers", "1", "--width", "64", "--precision", "fp32"]
    ran = subprocess.run(
        [*command, "--sizes", "200,400", *shape, "--queries", "3", "--rounds", "1"],
        cwd=ROOT,
        env=None,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    first, _, table = ran.stdout.partition("\n")
    galleries = json.loads(first)["galleries"]
    assert [each["item_count"] for each in galleries] == [200, 400]
    assert all(each["recall"] == 1.0 for each in galleries)
    assert all(each["coop_seconds"] > each["be_seconds"] > 0 for each in galleries)
    assert all(each["exact"]["recall"] == 1.0 for each in galleries)
    assert all(each["exact"]["be_seconds"] > 0 for each in galleries)
    row = "| paper, Intel Xeon Gold 6154 | 1,000,000 | exact | 1 | 1.6 s | 13 s | 47.00 h |"
    assert row in table
    assert list(tmp_path.iterdir()) == []
