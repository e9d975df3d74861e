"""benchmarks/bench/index.py runs, and what it prints is whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.small_runs import by_make_test_benchmarks

ROOT = Path(__file__).parents[2]


@by_make_test_benchmarks
@pytest.mark.timeout(300)
def test_a_quick_run_prints_every_figure(tmp_path: Path) -> None:
    """Small and without peers; exact answers, as 2,000 items are all compared."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.bench.index",
            "--quick",
            "--with-image-tokens",
            "--work",
            str(tmp_path),
        ],
        cwd=ROOT,
        env=None,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    first, _, table = ran.stdout.partition("\n")
    result = json.loads(first)
    [size] = result["sizes"]
    assert size["served"]["recall"] == size["thin_service"]["recall"] == 1.0
    assert size["served"]["restart"]["item_count"] == size["item_count"] == 2_000
    assert result["with_image_tokens"]["store_bytes"] > 2_000 * 49 * 192 * 2
    assert "| raw FAISS | 1 | 1.0000 |" in table


def test_an_unknown_peer_is_refused() -> None:
    """Before anything is measured."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench.index", "--quick", "--peers", "none_such"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2
    assert "none_such is none of milvus" in ran.stderr
