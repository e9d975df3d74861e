"""The benchmark of LeaPRR's tables on planted corpora: it trains, measures and draws."""

from pathlib import Path

import pytest

from benchmarks.bench.leaprr import RUNS, Bench, main
from tandem.lab.neighbours.lists.neighbour_file import save_neighbours
from tests.support.neighbours.planted_corpus import planted_neighbours

SMALL = ("width=8", "head_count=2", "pillar_count=5", "image_query_neighbours=7", "batch_size=16")
OTHER_MODEL = "7" * 64


def _files(folder: Path) -> list[str]:
    """Writes lists of train, dev and test."""
    paths = [folder / name for name in ("train", "dev", "test")]
    for seed, path in enumerate(paths):
        save_neighbours(path, planted_neighbours(seed=seed, image_count=24))
    return [str(path) for path in paths]


def _bench(monkeypatch: pytest.MonkeyPatch, files: list[str], *arguments: str) -> None:
    settings = [word for setting in SMALL for word in ("--set", setting)]
    words = ["bench", *files, "--work", str(Path(files[0]).parent / "work"), "--epochs", "1"]
    monkeypatch.setattr("sys.argv", [*words, *settings, *arguments])
    main()


def test_every_run_differs_from_the_full_one_in_its_own_settings(tmp_path: Path) -> None:
    """No two runs have one configuration, and a run's own setting wins over a common one."""
    near = planted_neighbours(seed=1)
    bench = Bench(tmp_path, near, near, "code", SMALL, 1)

    assert len({bench.config(run) for run in RUNS}) == len(RUNS)
    assert bench.config("pillars_2").pillar_count == 2
    assert bench.config("full").pillar_count == 5


def test_finished_runs_stay_and_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seeds are trained once; the report has their row, another corpus' and the figures."""
    files = _files(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    save_neighbours(elsewhere, planted_neighbours(8, 24, fingerprint=OTHER_MODEL))
    _bench(monkeypatch, files, "--seeds", "1,2", "--runs", "full,neighbours_2")
    networks = tmp_path / "work" / "full-1" / "leaprr.safetensors"
    written = networks.stat().st_mtime_ns
    assert "full-2: epoch 1" in capsys.readouterr().out

    _bench(monkeypatch, files, "--seeds", "1,2", "--runs", "full,neighbours_2")
    drawn = tmp_path / "figures.png"
    shown = ["--report", "--methods", "aqe", "krnn", "--elsewhere", str(elsewhere)]
    _bench(monkeypatch, files, *shown, "--plot", str(drawn))

    assert networks.stat().st_mtime_ns == written
    printed = capsys.readouterr().out
    rows = {line.split(" | ")[0] for line in printed.splitlines() if line.startswith("| ")}
    assert {"| krnn", "| LeaPRR neighbours 2", "| LeaPRR, text queries alone"} < rows
    assert {"| LeaPRR, as served"} < rows
    assert "LeaPRR against each" in printed
    assert "LeaPRR, as served against each" in printed
    assert drawn.stat().st_size > 10_000
    with pytest.raises(ValueError, match="full-1 has other settings"):
        _bench(monkeypatch, files, "--report", "--set", "margin=0.3")
