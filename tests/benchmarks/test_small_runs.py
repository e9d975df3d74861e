"""Every benchmark still runs, in small, and prints figures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    os.environ.get("TANDEM_BENCHMARK_RUNS") != "small",
    reason="a quarter of an hour, run by make test-benchmarks",
)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "command",
    [
        "abstention --count 40 --draws 2",
        "calibration --scenes 40 --queries 8",
        "contents --items 32 --content-bytes 20000 --work WORK",
        "engine --scenes 24 --queries 6",
        "gateway --scenes 12 --searches 5",
        "golden --queries 40",
        "gpu --device cpu --models default --items 200 --gallery 24 --held 48 --queries 2 "
        "--batches 1,2 --pairs 2,4 --triton --strict",
        "index --quick --with-image-tokens --work WORK",
        "neighbour_stage --size 4000 --queries 2 --pools 64 --faiss-type IVF16,SQ8 --nprobe 4",
        "overload --scenes 40 --seconds 3 --step-seconds 2",
        "overload --door http --scenes 40 --seconds 3 --step-seconds 2",
        "search --scenes 32 --queries 6 --rounds 1 --shards 1",
        "search --scenes 32 --queries 6 --rounds 1 --shards 1 --merged",
        "table3 --work WORK --sizes 200,400 --layers 1 --width 64 --precision fp32 --queries 3 "
        "--rounds 1",
        "train_grid --work WORK --base tiny --seeds 1 --runs joint,bi_encoder,"
        "cross_encoder_after_be,joint_on_emoji,sep_on_emoji --questions "
        "scenes,every_pair,unseen_style,unseen_concepts",
    ],
)
def test_it_runs_to_its_end(command: str, tmp_path: Path) -> None:
    """What a benchmark asks for can become invalid, and no one sees it before its next run."""
    name, *arguments = command.replace("WORK", str(tmp_path)).split()

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
        "engines",  # needs a server of an engine
        "item_changes",  # needs a running system, and takes minutes
        "ray",  # needs the environment of integrations/ray
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
