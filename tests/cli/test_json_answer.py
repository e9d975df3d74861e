"""`--json`, TANDEM_ADDRESS, the help and completion: what all commands have in common."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.client import Client, Item
from tandem.client.testing import FakeServer

ROOT: Any = typer.main.get_command(app)


@pytest.fixture(name="address", scope="module")
def _address() -> Iterator[str]:
    with FakeServer() as server:
        with Client(server.address) as client:
            list(client.ingest([Item("a", text="a cup"), Item("b", image=b"x")], index_id="pets"))
        yield server.address


def found(*arguments: str, status: int = 0) -> dict[str, Any]:
    """Returns the only object on stdout."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    [line] = result.stdout.splitlines()
    return dict(json.loads(line))


def test_commands_print_one_object(address: str) -> None:
    at = ("--address", address)
    [pets] = found("index", "list", *at)["indexes"]
    shown = found("index", "show", "pets", *at)
    assert pets == {
        "index_id": "pets", "model_fingerprint": shown["model_fingerprint"], "text_count": 1,
        "image_count": 1,
    }  # fmt: skip
    assert shown["index_id"] == "pets"
    assert found("models", "describe", *at)["family"] == "fake"
    assert found("health", address) == {"address": address, "status": "SERVING"}
    assert found("remove", "a", "c", "--index", "pets", *at)["removed_count"] == 1
    assert found("index", "drop", "pets", "--yes", *at) == {"index_id": "pets", "removed_count": 1}
    assert CliRunner().invoke(app, ["index", "list", *at]).stdout.split()[0] == "index"


def test_a_failure_is_in_the_object_or_on_stderr(address: str) -> None:
    assert found("health", "127.0.0.1:1", status=1)["status"] == "UNAVAILABLE"
    result = CliRunner().invoke(app, ["index", "show", "cars", "--json", "--address", address])
    assert result.exit_code == 1
    assert not result.stdout


def test_the_address_may_be_in_the_environment(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every command that calls a server; an option comes before it."""
    monkeypatch.setenv("TANDEM_ADDRESS", address)
    assert found("health") == {"address": address, "status": "SERVING"}
    assert found("models", "describe")["family"] == "fake"
    assert CliRunner().invoke(app, ["health", "127.0.0.1:1"]).exit_code == 1

    options = [
        option
        for command in ROOT.commands.values()
        for each in getattr(command, "commands", {"": command}).values()
        for option in each.params
        # Of neighbours build it is no default, but a choice.
        if "--address" in option.opts and option.default
    ]
    assert len(options) >= 8
    assert {option.envvar for option in options} == {"TANDEM_ADDRESS"}


def helps() -> Iterator[tuple[list[str], Any]]:
    """Yields the path of the command line and of each group."""
    yield [], ROOT
    for name, command in ROOT.commands.items():
        if hasattr(command, "commands"):
            yield [name], command


def test_help_lists_every_command_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path, group in helps():
        text = CliRunner().invoke(app, [*path, "--help"]).stdout
        commands = group.commands
        assert commands
        assert "..." not in text.replace("[ARGS]...", "")
        for name, each in commands.items():
            assert len(re.findall(rf"^  {name}   *\S", text, re.MULTILINE)) == 1, (path, name)
            first = each.help.split()[0]
            assert not first.endswith("s"), (path, name, first)


def test_a_shell_completes_commands_and_options() -> None:
    def completed(words: str, place: int) -> list[str]:
        asks = {"_TANDEM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        said = subprocess.run(
            [sys.executable, "-c", "from tandem.cli.app import app; app(prog_name='tandem')"],
            env=os.environ | asks, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return said.stdout.split()

    assert completed("tandem in", 1) == ["ingest", "index"]
    assert completed("tandem search --add", 2) == ["--address"]
