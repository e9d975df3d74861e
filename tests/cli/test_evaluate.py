"""`tandem evaluate` of a checkpoint, which needs no server; the served path is tested in system."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.scenes import scene_records
from tests.modeling.tiny_checkpoint import save_tiny_checkpoint


def untrained(folder: Path, seed: int) -> Path:
    """Writes an untrained model that knows the words of the gallery below."""
    captions = (
        caption.text for record in scene_records("test", 1, 8) for caption in record.captions
    )
    save_tiny_checkpoint(folder, seed=seed, texts=tuple(captions))
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model."""
    return untrained(tmp_path_factory.mktemp("checkpoint"), seed=0)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that retrieves in another order, as the test of it shows."""
    return untrained(tmp_path_factory.mktemp("other"), seed=7)


def run(*arguments: str) -> tuple[int, str]:
    """Returns the exit status and what was printed, both streams."""
    result = CliRunner().invoke(app, ["evaluate", "--gallery-count", "8", *arguments])
    return result.exit_code, result.output


def test_each_pool_size_is_a_row(checkpoint: Path) -> None:
    """Both directions: retrieval alone, then every k asked for, the smallest first."""
    status, output = run("--checkpoint", str(checkpoint), "--k", "8", "--k", "2")

    assert status == 0, output
    assert [output.count(each) for each in ("text→image", "BE + CE 2 ", "BE + CE 8 ")] == [2, 2, 2]
    assert output.index("BE + CE 2 ") < output.index("BE + CE 8 ")


def test_a_pool_size_gives_the_same_row_beside_a_smaller_one(checkpoint: Path) -> None:
    """The largest decides how much is scored."""
    _, alone = run("--checkpoint", str(checkpoint), "--k", "8")
    _, beside = run("--checkpoint", str(checkpoint), "--k", "2", "--k", "8")

    assert rows(alone, "BE + CE 8") == rows(beside, "BE + CE 8")
    assert rows(beside, "BE + CE 8") != rows(beside, "BE + CE 2")


def test_another_checkpoint_may_retrieve(checkpoint: Path, other: Path) -> None:
    """Sep+Coop from two folders: the other's retrieval, reranked by this one."""
    _, its_own = run("--checkpoint", str(checkpoint))
    _, theirs = run("--checkpoint", str(other))

    status, both = run("--checkpoint", str(checkpoint), "--retriever", str(other))

    assert status == 0, both
    assert rows(both, "BE  ") == rows(theirs, "BE  ")
    assert rows(both, "BE  ") != rows(its_own, "BE  ")
    # A pool of everything is the cross-encoder's order, whoever retrieved.
    assert rows(both, "BE + CE 20") == rows(its_own, "BE + CE 20")


def rows(output: str, order_by: str) -> list[str]:
    """Returns the numbers of both directions' rows of that order."""
    return [line.partition(order_by)[2].strip() for line in output.splitlines() if order_by in line]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--k", "10"], "need --checkpoint"),
        (["--retriever", "folder"], "need --checkpoint"),
        (["--regions", "file"], "need --checkpoint"),
        (["--checkpoint", "folder", "--query-count", "5"], "whole gallery"),
        (["--checkpoint", "folder", "--k", "0"], "greater than or equal to 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], says: str) -> None:
    """Before any work, and not ignored in silence."""
    status, output = run(*arguments)

    assert status == 2
    assert says in " ".join(output.replace("│", " ").split())


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    """With what it lacks."""
    result = CliRunner().invoke(
        app, ["evaluate", "--gallery-count", "8", "--checkpoint", str(tmp_path)]
    )

    assert isinstance(result.exception, ValueError)
    assert "is no checkpoint: it lacks model.safetensors" in str(result.exception)
