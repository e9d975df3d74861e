"""One name for one thing, and no message names a command that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import typer

import tandem
from tandem.cli.app import app

_COMMAND = re.compile(r"(?:^|[^-\w/.])tandem ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?")


def test_messages_name_commands_that_exist() -> None:
    group = typer.main.get_command(app)
    named: dict[tuple[str, str], Path] = {}
    for path in Path(tandem.__path__[0]).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "tandem " in text else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= dict.fromkeys(_COMMAND.findall(node.value), path)
    for (first, second), path in named.items():
        command = group.commands.get(first)  # type: ignore[attr-defined]
        assert command is not None, f"{path}: tandem {first}"
        subcommands = getattr(command, "commands", {})
        assert not second or not subcommands or second in subcommands, f"{path}: {first} {second}"
    assert ("models", "add") in named


NAMES = {
    "--count": {
        *("calibrate", "demo", "evaluate", "golden start", "ingest", "models calibrate"),
        *("neighbours build", "sync", "train"),
    },
    "--model-repository": {
        *("demo", "up", "models add", "models list", "models remove", "models swap"),
        *("models add-neighbours", "models verify"),
    },
    "--truncation-policy": {"evaluate", "ingest", "search", "sync"},
    "--rerank-k": {
        *("calibrate", "evaluate", "index compare", "models calibrate", "neighbours build"),
        "search",
    },
}


def test_one_thing_has_one_name() -> None:
    root = typer.main.get_command(app)
    having: dict[str, set[str]] = {}
    for group, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {"": command})
        for each, one in below.items():
            for name in NAMES.keys() & {name for every in one.params for name in every.opts}:
                having.setdefault(name, set()).add(f"{group} {each}".strip())

    assert having == NAMES
