"""`tandem evaluate --neighbours`: orders by neighbours next to those that they reorder."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.metrics import paired_p_value
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.neighbours.leaprr.served_networks import described
from tandem.lab.neighbours.leaprr.training_folder import LeaprrFolder
from tandem.lab.neighbours.lists.neighbour_file import load_neighbours
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

SIZES = [
    "width=8",
    "head_count=2",
    "pillar_count=4",
    "affinity_neighbours=4",
    "image_query_neighbours=7",
    "batch_size=12",
]


@pytest.fixture(scope="module", name="checkpoint")
def _checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model that knows the words of the scenes below."""
    folder = tmp_path_factory.mktemp("checkpoint")
    records = [*scene_records("test", 1, 8), *scene_records("train", 2, 12)]
    save_tiny_checkpoint(
        folder, seed=4, texts=tuple(said.text for each in records for said in each.captions)
    )
    return folder


def _run(*words: str | Path) -> tuple[int, str]:
    """Returns the exit status, and what was printed with the error."""
    result = CliRunner().invoke(app, [str(each) for each in words])
    return result.exit_code, result.output + str(result.exception or "")


def _evaluated(checkpoint: Path, *options: str | Path) -> tuple[int, str]:
    return _run("evaluate", "--count", "8", "--checkpoint", checkpoint, *options)


def test_neighbour_rows_follow_the_order_that_they_rerank(checkpoint: Path, tmp_path: Path) -> None:
    """A method without labels over BE and BE + CE, and networks that learned over BE."""
    dev, train = tmp_path / "dev", tmp_path / "train"
    build = ("neighbours", "build", "--checkpoint", checkpoint, "--k", "8", "--language", "en")
    for status, printed in [
        _run(*build, dev, "--split=test", "--seed=3", "--count=8", "--rerank-k=2"),
        _run(*build, train, "--split=train", "--seed=2", "--count=12"),
    ]:
        assert status == 0, printed
    settings = [f"--set={each}" for each in SIZES]
    folder = ("--folder", tmp_path / "leaprr", "--epochs=1")
    status, printed = _run("train", "neighbours", train, "--dev", dev, *folder, *settings)
    assert status == 0, printed

    methods = ("--neighbours", "krnn", "--neighbours", tmp_path / "leaprr", "--neighbours-dev", dev)
    report_options = ("--rerank-k", "2", "--report", tmp_path / "report")
    again = ("--neighbours", "krnn")  # it is measured once
    status, printed = _evaluated(checkpoint, *methods, *again, *report_options)

    assert status == 0, printed
    report = Report.read(tmp_path / "report")
    over_be = ["BE + krnn", "BE + LeaPRR leaprr", "BE + LeaPRR leaprr, as served"]
    assert report.orders() == ["BE", "BE + CE 2", *over_be, "BE + CE 2 + krnn"]
    assert [each.direction for each in report.rankings] == ["text→image"] * 6 + ["image→text"] * 6
    assert report.about["neighbours krnn"] == "BE: k 5; BE + CE 2: k 5"
    digest = load_neighbours(dev).source.corpus_sha256
    assert report.about["neighbours dev"] == f"{dev}, corpus {digest[:16]}"
    networks, training = LeaprrFolder(tmp_path / "leaprr").read()
    served = described(networks, training.plan.train.model_fingerprint).fingerprint
    assert report.about["neighbours LeaPRR leaprr"].endswith(f"over BE, networks {served[:12]}")
    assert report.base_of("BE + CE 2 + krnn") == "BE + CE 2"
    reordered = report.ranking("image→text", "BE + CE 2 + krnn")
    base = report.ranking("image→text", "BE + CE 2")
    assert reordered.k == base.k
    assert report.p_value(reordered) == paired_p_value(reordered.hit_counts, base.hit_counts)


def test_lists_of_the_measured_part_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    lists = {"test": "--seed=1", "other": "--seed=3", "train": "--seed=2"}
    for name, seed in lists.items():
        build = ("neighbours", "build", tmp_path / name, "--checkpoint", checkpoint, "--k=8")
        split = "train" if name == "train" else "test"
        status, printed = _run(*build, "--language=en", f"--split={split}", seed, "--count=12")
        assert status == 0, printed
    settings = [f"--set={each}" for each in SIZES]
    for train, dev in [("train", "test"), ("test", "train"), ("train", "other")]:
        files = (tmp_path / train, "--dev", tmp_path / dev, "--folder", tmp_path / f"{train}-{dev}")
        status, printed = _run("train", "neighbours", *files, "--epochs=1", *settings)
        assert status == 0, printed

    for method, who in [
        ("krnn", "test"),
        ("train-test", "train-test, whose epoch they chose,"),
        ("test-train", "test-train, which learned from them,"),
    ]:
        asked = [
            "--rerank-k=0",
            f"--neighbours={method if method == 'krnn' else tmp_path / method}",
        ]
        asked += [f"--neighbours-dev={tmp_path / 'test'}"] if method == "krnn" else []
        status, printed = _evaluated(checkpoint, *asked)
        assert status == 1
        assert f"{who} has lists of scenes, split test, which is measured" in printed
        assert "encode the gallery" not in printed
        status, printed = _evaluated(checkpoint, *asked, "--allow-trained")
        assert status == 0, printed
    status, printed = _evaluated(
        checkpoint, "--rerank-k=0", "--neighbours", tmp_path / "train-other"
    )
    assert status == 0, printed
