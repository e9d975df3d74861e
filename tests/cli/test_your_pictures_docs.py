"""docs/your-pictures.md: its commands are there, in order, and what it says of the layout holds."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from tandem.cli.app import app
from tests.support.pictures.pictures import encoded, plain

PAGE = (Path(__file__).parents[2] / "docs/your-pictures.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```(?:sh|text)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
    if line.startswith("tandem ")
]


@pytest.fixture(name="pets")
def _pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lays pets/ out as the page does, and goes there."""
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val", "test"):
        (tmp_path / "pets" / split).mkdir(parents=True)
        for name in ("cat", "dog"):
            (tmp_path / "pets" / split / f"{name}.jpg").write_bytes(encoded(plain(), "JPEG"))
            (tmp_path / "pets" / split / f"{name}.txt").write_text(f"a {name}")


def test_the_page_goes_from_a_folder_to_a_model_of_it() -> None:
    """Serve and ingest, search and evaluate, train, add, serve, in this order."""
    order = [" ".join(command.split()[1:3]) for command in COMMANDS]

    assert order == [
        "up --ingest",
        'search "a',
        "evaluate pets",
        "train photographs",
        "evaluate pets",
        "models add",
        "up --model-repository",
        "ingest pets",
        'search "a',
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
