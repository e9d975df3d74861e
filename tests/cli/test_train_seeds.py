"""`tandem train --seeds`: several seeds of one recipe or two, each measured, and their figures."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.emoji import emoji_records
from tandem.lab.evaluation.reports.report import BE, Ranking, Report
from tandem.lab.training.runs.run_manifest import FILE_NAME
from tandem.platform.child_processes.child_environment import python_environment
from tests.support.corpus.written_karpathy import write_karpathy

TEXT, IMAGE = "text→image", "image→text"
OPTIONS = ["--rounds", "2", "--corpus", "pets", "--set", "margin=0.2", "--set", "dropout=0.1"]

# What `tandem train --seeds` does with one run.
QUEUE = """
import sys
from pathlib import Path
from tandem.cli.train.train_seeds import _finished
from tandem.lab.training.runs.run_manifest import ListedRun, RunManifest

folder, run = Path(sys.argv[1]), ListedRun("tiny", 1)
manifest = RunManifest.opened(folder, {}, [run])
# It must not end by itself meanwhile.
endless = ["train", "tiny", "--set", "round_count=1000000", "--folder", str(folder)]
_finished(endless, manifest, run)
"""


def run(*arguments: str) -> tuple[int, str]:
    """Returns the status and what was printed, both streams."""
    result = CliRunner().invoke(app, ["train", *arguments])
    error = "" if isinstance(result.exception, SystemExit) else str(result.exception or "")
    return result.exit_code, result.output + error


def write_report(folder: Path, ranks: tuple[int, ...]) -> None:
    """Writes what one seed answered, in both directions."""
    rankings = tuple(
        Ranking(name, BE, 0, ranks, other_ranks=((),) * len(ranks)) for name in (TEXT, IMAGE)
    )
    languages = {name: ["en"] * len(ranks) for name in (TEXT, IMAGE)}
    Report({"title": "t"}, languages, rankings, {}).write(folder / "report.json")


def write_done(folder: Path, ranks: dict[tuple[str, int], tuple[int, ...]]) -> None:
    """Writes a list of runs that are done, with their reports."""
    runs = []
    for (recipe, seed), of_run in ranks.items():
        write_report(folder / f"seed-{seed}" / f"{recipe}-report", of_run)
        runs.append({"recipe": recipe, "seed": seed, "phase": "done", "core_seconds": 10.0})
    settings = {
        # As the command declares them, not as they were typed.
        "options": ["--corpus", "pets", "--rounds", "2", *OPTIONS[-4:]],
        "test": ["pets", "--split", "test"],
    }
    content = {"settings": settings, "runs": runs}
    (folder / FILE_NAME).write_text(json.dumps(content))


def test_finished_work_is_not_repeated(tmp_path: Path) -> None:
    """Nothing is trained: mean, deviation and interval by hand, and the paired test of two recipes.

    R@1 of 25, 50 and 75 percent: 50 ± 25, and 4.303 · 25 / √3 either way.
    """
    ranks = {("tiny", count + 3): (1,) * count + (2,) * (4 - count) for count in (1, 2, 3)}
    ranks |= {("half", seed): (1, 1, 1, 1) for seed in (4, 5, 6)}
    write_done(tmp_path, ranks)

    status, output = run(
        *("tiny", "--seeds", "3", "--seed", "4", "--against", "half", "--folder", str(tmp_path)),
        *OPTIONS,
    )

    assert status == 0, output
    assert "tiny, 3 seeds" in output
    row = next(line for line in output.splitlines() if "50.0 ± 25.0" in line)
    assert "-12.1 to 112.1" in row
    assert "100.0 ± 0.0" in output
    compared = [line for line in output.splitlines() if "+50.0" in line]
    # Three queries differ in one seed or more: 2 x 1/8.
    assert len(compared) == 2
    assert all(line.rstrip().endswith("0.25") for line in compared)
    assert "6 runs, 60 core-seconds" in output


def test_other_options_are_not_mixed_with_those_of_before(tmp_path: Path) -> None:
    write_done(tmp_path, {("tiny", 1): (1, 2)})

    status, output = run("tiny", "--seeds", "1", "--folder", str(tmp_path), *OPTIONS[:-2])

    assert status == 1
    assert "other options: options" in output


def test_a_run_ends_with_the_command_that_began_it(tmp_path: Path) -> None:
    """A killed command leaves no training that would continue in the next run's folder."""
    queue = subprocess.Popen(
        [sys.executable, "-P", "-c", QUEUE, str(tmp_path)],
        env=python_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        _wait_for_trainings(tmp_path, 1)
    finally:
        queue.kill()
        queue.wait()
    try:
        _wait_for_trainings(tmp_path, 0)
    finally:
        for each in _trainings(tmp_path):
            os.kill(each, signal.SIGKILL)


def _wait_for_trainings(folder: Path, count: int) -> None:
    """Returns once so many run; fails after two minutes."""
    deadline_time = time.monotonic() + 120
    while len(_trainings(folder)) != count:
        assert time.monotonic() < deadline_time, _trainings(folder)
        time.sleep(0.1)


def _trainings(folder: Path) -> list[int]:
    """Returns the processes that train in the folder."""
    argument = f"--folder\0{folder}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            if argument in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_seeds_of_a_corpus_are_trained_and_measured(tmp_path: Path) -> None:
    records = [
        *islice(emoji_records("train"), 0, 400, 5),
        *islice(emoji_records("val"), 40),
        *islice(emoji_records("test"), 24),
    ]
    corpus = write_karpathy(records, tmp_path / "corpus")
    folder = tmp_path / "runs"
    arguments = [
        *("tiny", "--seeds", "2", "--corpus", str(corpus), "--folder", str(folder)),
        *("--device", "cpu", "--drop-long-captions", "--rounds", "2", "--language", "en"),
        *("--test", "--split test --count 24 --language en --rerank-k 4 --on-error skip"),
    ]
    (folder / "seed-2").mkdir(parents=True)
    in_the_way = folder / "seed-2" / "tiny-report"
    in_the_way.write_text("a file where the report goes")

    failed, says = run(*arguments)
    in_the_way.unlink()
    runs_before = json.loads((folder / FILE_NAME).read_text())["runs"]
    trained_time = (folder / "seed-2" / "tiny" / "model.safetensors").stat().st_mtime
    status, output = run(*arguments)

    assert failed == 1
    assert "failed: tiny seed 2" in says
    assert [each["phase"] for each in runs_before] == ["done", "failed"]
    assert status == 0, output
    runs = json.loads((folder / FILE_NAME).read_text())["runs"]
    assert [each["phase"] for each in runs] == ["done", "done"]
    assert all(each["core_seconds"] > 1 for each in runs)
    assert runs[0]["core_seconds"] == runs_before[0]["core_seconds"]
    assert runs[1]["core_seconds"] > runs_before[1]["core_seconds"]
    assert (folder / "seed-2" / "tiny" / "model.safetensors").stat().st_mtime == trained_time
    assert "R@1" in runs[1]["result"]["text→image, BE"]
    assert "tiny, 2 seeds" in output
