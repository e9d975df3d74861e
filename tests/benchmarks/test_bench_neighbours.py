"""The benchmark of neighbours: rows of planted corpora, and what the tests compare."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.bench.neighbours import main
from tandem.evaluation.metrics import paired_p_value
from tandem.neighbours.leaprr.config import leaprr_config
from tandem.neighbours.leaprr.training_folder import LeaprrFolder, LeaprrPlan
from tandem.neighbours.neighbour_file import NeighbourManifest, save_neighbours
from tests.support.neighbours.planted_corpus import planted_neighbours


def _trained(folder: Path, seed: int) -> Path:
    """Trains one epoch on planted neighbours."""
    corpora = planted_neighbours(1, 24), planted_neighbours(2, 24)
    config = replace(
        leaprr_config("code"), width=8, head_count=2, pillar_count=4, image_query_neighbours=5
    )
    manifests = [NeighbourManifest.of(each) for each in corpora]
    plan = LeaprrPlan("code", config, seed, 1, *manifests)
    LeaprrFolder(folder).train(plan, corpora, resume=False)
    return folder


def test_each_method_is_a_row_with_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """LeaPRR's seeds are one row, compared with every method without labels."""
    dev, test = tmp_path / "dev", tmp_path / "test"
    save_neighbours(dev, planted_neighbours(seed=3, image_count=24))
    save_neighbours(test, planted_neighbours(seed=4, image_count=24))
    folders = [_trained(tmp_path / f"seed_{seed}", seed) for seed in (1, 2)]
    words = ["bench", str(dev), str(test), "--leaprr", *map(str, folders)]
    monkeypatch.setattr("sys.argv", words)

    main()

    printed = capsys.readouterr().out
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    methods = [line.split(" | ")[0].removeprefix("| ") for line in rows]
    assert methods[:4] == ["method", "---", "BE", "aqe"]
    assert methods.count("krnn") == 2  # its recalls, and the test against it
    learned = rows[methods.index("LeaPRR")]
    assert "seed_1, seed_2" in learned
    assert "±" in learned
    assert {"LeaPRR, image queries alone", "LeaPRR, text queries alone"} < set(methods)
    assert paired_p_value([1, 1], [1, 1]) == 1  # what equal rows have
    assert rows[methods.index("krnn-similar")].count("|") == rows[0].count("|")
