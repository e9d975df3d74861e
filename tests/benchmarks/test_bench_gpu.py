"""benchmarks/bench/gpu.py runs without a GPU, and what it prints is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(900)  # many CPUs compute fp16 a hundred times slower than fp32
def test_a_small_run_on_the_cpu_prints_every_figure() -> None:
    """The device is the reference itself, so fp32 is off by nothing; Triton gives the same too."""
    shape = ["--device", "cpu", "--models", "default", "--items", "200", "--gallery", "24"]
    sizes = ["--held", "48", "--queries", "2", "--batches", "1,2", "--pairs", "2,4"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench.gpu", *shape, *sizes, "--triton", "--strict"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    first, _, table = ran.stdout.partition("\n")
    result = json.loads(first)
    reference, same, halved = result["agreement"]
    assert reference["logits_max_off"] == same["logits_max_off"] == 0.0
    assert 0.0 < halved["logits_max_off"] < 0.2
    assert result["triton"]["logits_max_off"] < 1e-3
    assert result["triton"]["pairs_per_second"] > 0
    for times in result["times"].values():
        assert times["tokens_on_device"]["p50_ms"] > 0
        assert [each["pairs"] for each in times["pairs"]] == [2, 4]
    assert "| default fp16 |" in table
