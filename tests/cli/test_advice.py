"""Advice names options that there are, and only to commands that have them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import tandem
from tandem.cli.app import app
from tandem.cli.command_line import CommandLine
from tandem.cli.refusals import OFFERED, described, suited
from tandem.errors import TextTooLong

ROOT = Path(tandem.__file__).parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+(?!\w|\.\w)")
# Of pip, git, Triton, and of our services, which are no commands.
FOREIGN = {
    *("--no-deps", "--target", "--find-links", "--untracked-files", "--short", "--porcelain"),
    *("--settings", "--metrics", "--version", "--help"),
}
OTHER_PROGRAMS = ("server.py", "prometheus.py")


@pytest.fixture(scope="module", name="commands")
def _commands() -> dict[str, frozenset[str]]:
    """Returns the options of every command by its words."""
    group = typer.main.get_command(app)
    assert isinstance(group, CommandLine)
    found: dict[str, frozenset[str]] = {}

    def walk(names: tuple[str, ...], command: object) -> None:
        for name, each in getattr(command, "commands", {}).items():
            walk((*names, name), each)
        parameters = getattr(command, "params", ())
        options = (each for one in parameters for each in (*one.opts, *one.secondary_opts))
        found[" ".join(names)] = frozenset(options)

    walk((), group)
    return {name: options for name, options in found.items() if name}


def texts() -> Iterator[tuple[Path, str]]:
    """Yields every text of the program that names an option, without docstrings."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        inner = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if id(node) in docs or id(node) in inner:
                continue
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                text = "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if OPTION.search(text):
                yield path, text


@pytest.fixture(scope="module", name="named")
def _named() -> list[tuple[Path, str]]:
    """Returns every text of the program that names an option."""
    return list(texts())


def test_every_option_that_a_text_names_is_one_of_a_command(
    commands: dict[str, frozenset[str]], named: list[tuple[Path, str]]
) -> None:
    known = frozenset().union(*commands.values()) | FOREIGN
    words = "|".join(sorted(commands, key=len, reverse=True))
    called = re.compile(rf"\btandem ({words})\b((?:(?!\btandem ).)*)", re.DOTALL)
    wrong = []
    for path, text in named:
        if path.name in OTHER_PROGRAMS:
            continue
        wrong += [(path.name, each) for each in OPTION.findall(text) if each not in known]
        for command, rest in called.findall(text):
            # Up to the end of the sentence's part, which may go on to speak of another command.
            options = OPTION.findall(re.split(r"[;,:.] ", rest)[0])
            wrong += [(command, each) for each in options if each not in commands[command]]

    assert len(named) > 150
    assert wrong == []


def test_no_command_is_advised_of_an_option_that_it_lacks(
    commands: dict[str, frozenset[str]], named: list[tuple[Path, str]]
) -> None:
    own = ("cli", "files", "pictures", "repository", "texts", "training", "triton", "neighbours")
    shared = [text for path, text in named if path.relative_to(ROOT).parts[0] not in own]
    shared += [text for path, text in named if path.name == "readable_records.py"]
    assert len(shared) > 4
    lacking = []
    for command, options in commands.items():
        token = OFFERED.set(options)
        try:
            told = [suited(f"a fault; {text.removeprefix('; ')}") for text in shared]
            long = described(TextTooLong(got=302, limit=64, unit="tokens"))
        finally:
            OFFERED.reset(token)

        assert ("--truncation-policy" in long) == ("--truncation-policy" in options)
        assert "shorten it" in long
        lacking += [
            (command, each)
            for text in [*told, long]
            for part in text.split("; ")
            if not re.search(r"\btandem [a-z]", part)
            for each in OPTION.findall(part)
            if each not in options
        ]

    assert lacking == []
