"""benchmarks/bench/search.py runs, and what it prints is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", [[], ["--merged"]])
def test_a_small_run_prints_every_figure(shape: list[str]) -> None:
    """Both sides answer alike; the stages add up; the remaining time is reported."""
    numbers = ["--scenes", "32", "--queries", "6", "--rounds", "1", "--shards", "1"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench.search", *numbers, *shape],
        cwd=ROOT,
        env=None,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    first, _, table = ran.stdout.partition("\n")
    result = json.loads(first)
    assert result["answers_shared"] > 0.95
    one, many = result["clients_1"], result["clients_16"]
    assert one["served"]["p50_ms"] > 0
    assert many["by_hand"]["searches_per_second"] > 0
    spent = one["spent_ms"]
    stages = sum(spent[name] for name in ("encode", "retrieve", "rerank", "rank"))
    outside = spent["client, way to the orchestrator"] + spent["orchestrator, outside of stages"]
    assert spent["client"] == pytest.approx(stages + outside)
    assert spent["Triton, executions"] >= 2  # the text, the pairs: nothing came out of a cache
    assert one["cpu_ms"]["models"] > 0
    assert result["batch_cpu_ms"]["models"] > 0
    assert result["batch_throughput_gain"] > 0
    assert "| 1 | served |" in table
