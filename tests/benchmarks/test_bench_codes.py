"""benchmarks/bench_codes.py runs, over made vectors and over scenes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("source", "dimension"), [(["--items", "2000"], 384), (["--scenes", "2000"], 192)]
)
def test_every_type_is_measured(tmp_path: Path, source: list[str], dimension: int) -> None:
    """With all lists looked at the bytes find all, and bits nearly."""
    settings = [*source, "--queries", "50", "--nprobe", "64", "--work", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "benchmarks/bench_codes.py", *settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    first, _, table = ran.stdout.partition("\n")
    result = json.loads(first)
    assert (result["items"], result["dimension"]) == (2_000, dimension)
    recalls = {(row["type"], row["candidates"]): row["recall"] for row in result["rows"]}
    assert len(recalls) == 9
    assert recalls["IVF64,SQ8", 200] == 1.0
    assert 0.9 < recalls["IVF64,RaBitQfs", 40] <= recalls["IVF64,RaBitQfs", 200]
    assert "| IVF64,RaBitQfs |" in table
