"""`tandem evaluate` of a checkpoint, which needs no server; the served path is tested in system."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.scenes import scene_records
from tests.modeling.tiny_checkpoint import save_tiny_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model that knows the words of the gallery below."""
    folder = tmp_path_factory.mktemp("checkpoint")
    captions = (
        caption.text for record in scene_records("test", 1, 8) for caption in record.captions
    )
    save_tiny_checkpoint(folder, texts=tuple(captions))
    return folder


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


def test_another_checkpoint_may_retrieve(checkpoint: Path) -> None:
    """Sep+Coop from two folders."""
    status, output = run("--checkpoint", str(checkpoint), "--retriever", str(checkpoint))

    assert status == 0, output
    assert output.count("BE + CE 20") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--k", "10"], "need --checkpoint"),
        (["--retriever", "folder"], "need --checkpoint"),
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
