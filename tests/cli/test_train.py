"""`tandem train`: what it takes, what it refuses, and a corpus of one's own from end to end."""

import json
import re
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.emoji import emoji_records
from tandem.corpus.karpathy import write_karpathy
from tandem.model_io.precision import Precision, native_precision
from tests.modeling.tiny_checkpoint import save_tiny_checkpoint


def run(*arguments: str) -> tuple[int, str, str]:
    """Returns the exit status, what was printed, and the error."""
    result = CliRunner().invoke(app, ["train", *arguments])
    return result.exit_code, result.output, str(result.exception or "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["huge"], "no recipe 'huge'"),
        (["finetune"], "finetune needs --corpus"),
        (["tiny", "--corpus", "emoji"], "--corpus would be ignored"),
        (["tiny", "--backbone-steps", "3"], "--backbone-steps would be ignored"),
        (["tiny", "--rounds", "3", "--count", "4"], "--rounds, --count would be ignored"),
        (["tiny", "--drop-long-captions"], "--drop-long-captions would be ignored"),
        (["tiny", "--on-error", "skip"], "--on-error would be ignored"),
        (["tiny", "--device", "tpu"], "no device 'tpu'"),
        (["tiny", "--precision", "int8"], "has precision 'int8': bf16 or fp32"),
        (
            ["finetune", "--corpus", "emoji", "--pretrained", "x", "--image-source", "patches"],
            "--pretrained, --image-source would be ignored",
        ),
        (["finetune", "--corpus", "nowhere"], "no corpus 'nowhere'"),
        (["finetune", "--corpus", "emoji", "--init", "/nowhere"], "/nowhere is no checkpoint"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, arguments: list[str], why: str) -> None:
    """By name, and nothing is written."""
    status, _, error = run(*arguments, "--folder", str(tmp_path))

    assert status != 0
    assert why in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("recipe", [["tiny"], ["finetune", "--corpus", "emoji"]])
def test_a_run_that_is_over_is_not_gone_on_with(tmp_path: Path, recipe: list[str]) -> None:
    """It would begin anew and write over its result."""
    folder = tmp_path / recipe[0]
    folder.mkdir()
    (folder / "training.json").write_text('{"recipe": {"round_count": 2}}')
    (folder / "loss_curve.jsonl").write_text("{}\n{}\n")

    status, _, error = run(*recipe, "--resume", "--device", "cpu", "--folder", str(tmp_path))

    assert status != 0
    assert f"the run in {folder} is over" in error
    assert (folder / "loss_curve.jsonl").read_text() == "{}\n{}\n"


def test_a_corpus_of_ones_own_is_trained_on(tmp_path: Path) -> None:
    """A Karpathy file of two splits, with a checkpoint of one's own; recalls before and after."""
    records = [*islice(emoji_records("train"), 400), *islice(emoji_records("val"), 40)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    words = tuple(caption.text for each in records for caption in each.captions)
    save_tiny_checkpoint(tmp_path / "init", texts=words)

    status, printed, error = run(
        *("finetune", "--corpus", str(corpus), "--init", str(tmp_path / "init"), "--rounds", "2"),
        *("--device", "cpu", "--folder", str(tmp_path / "out"), "--drop-long-captions"),
        *("--precision", "fp32", "--backbone-steps", "2"),
    )

    assert (status, error) == (0, "")
    assert "emulates" not in printed
    assert re.search(r"[\d,]+ of [\d,]+ captions were too long", printed)
    assert "before: BE R@1" in printed.replace("\n", " ")
    folder = tmp_path / "out" / "finetune"
    training = json.loads((folder / "training.json").read_text())
    assert training["recipe"]["corpus"] == str(corpus)
    assert training["recipe"]["round_count"] == 2
    assert training["recipe"]["backbone_step_count"] == 2
    assert training["recipe"]["precision"] == "fp32"
    assert len((folder / "loss_curve.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_record_that_cannot_be_read_stops_it_or_is_counted(tmp_path: Path, on_error: str) -> None:
    """A cut picture and a picture without its file, by name; what is left is trained on."""
    records = [*islice(emoji_records("train"), 400), *islice(emoji_records("val"), 40)]
    corpus = write_karpathy(records, tmp_path / "corpus")
    words = tuple(caption.text for each in records for caption in each.captions)
    save_tiny_checkpoint(tmp_path / "init", texts=words)
    pictures = sorted((tmp_path / "corpus" / "images").iterdir())
    pictures[3].write_bytes(pictures[3].read_bytes()[:60])
    pictures[320].unlink()

    status, printed, error = run(
        *("finetune", "--corpus", str(corpus), "--init", str(tmp_path / "init"), "--rounds", "1"),
        *("--folder", str(tmp_path / "out"), "--drop-long-captions", "--on-error", on_error),
    )

    if on_error == "stop":
        assert status == 1
        assert records[3].record_id in error
        assert "000003.webp" in error
    else:
        assert (status, error) == (0, "")
        told = " ".join(printed.split())
        assert ("emulates bf16" in told) == (native_precision() is not Precision.BF16)
        assert "skipped records: 2" in told
        assert "picture not readable 1" in told
        assert "picture file not there 1" in told
        training = json.loads((tmp_path / "out" / "finetune" / "training.json").read_text())
        expected = {"picture not readable": 1, "picture file not there": 1}
        assert training["skipped_records"] == expected
