"""What is printed is text: nothing in it is an order to the console or to the terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tandem import cli
from tandem.cli.terminal.console import Terminal

HOSTILE = {
    "[/x]": "[/x]",
    "[red]a[/red]": "[red]a[/red]",
    "[link=file:///etc/passwd]a": "[link=file:///etc/passwd]a",
    ":smile:": ":smile:",
    "\x1b[31mred": r"\x1b[31mred",
    "\x9b31m": r"\x9b31m",
    "a\rb": r"a\rb",
    "a\bb\x07": r"a\x08b\x07",
    "a\x00b\x7f": r"a\x00b\x7f",
    "half \ud83d of it": r"half \ud83d of it",
    "byte \udcff": r"byte \udcff",
    "\u202efdp.exe": r"\u202efdp.exe",
    "line\u2028end": r"line\u2028end",
    "tab\there": r"tab\there",
    "שלום\u200f": "שלום\u200f",
    "👩\u200d🚀 two cells": "👩\u200d🚀 two cells",
}


def terminal(text: io.StringIO) -> Terminal:
    made = Terminal()
    made.file = text
    return made


class Screen(io.StringIO):
    """What a terminal of a width was sent."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("draw", ["print", "rule", "cell", "refusal"])
def test_text_is_printed_as_it_is(draw: str) -> None:
    for hostile, printed in HOSTILE.items():
        text = io.StringIO()
        screen = terminal(text)
        match draw:
            case "print":
                screen.print(hostile, markup=True, emoji=True, highlight=True)
            case "rule":
                screen.rule(hostile)
            case "refusal":
                screen.refusal("SOME_REASON", hostile)
            case _:
                screen.rows([["before", "x"], ["0", hostile]])
        assert printed in text.getvalue()
        text.getvalue().encode()


@pytest.mark.parametrize("kind", [io.StringIO, Screen])
def test_nothing_is_cut(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    item_id = "photos/2024/" + "x" * 300
    text = kind()
    screen = terminal(text)
    screen.rows([["rank", "item"], ["1", item_id]], left=[1])
    screen.print(f"{item_id} again")
    screen.rule(item_id)

    assert text.getvalue().count(item_id) == 3
    assert not any(line.endswith(" ") for line in text.getvalue().splitlines())


def test_no_command_prints_past_the_console() -> None:
    """Rich's Text, its own consoles and bars, and print take markup or control characters."""
    sources = {
        path.stem: path.read_text(encoding="utf-8") for path in Path(cli.__path__[0]).rglob("*.py")
    }
    allowed: dict[str, set[str]] = {
        "console": {"rich.text", "rich.console"},
        "progress": {"rich.text", "rich.progress"},
        "settings_page": {"\n    print("},  # a page for a file, of our own words
    }
    past = {
        "rich.text",
        "rich.console",
        "rich.progress",
        "rich.markup",
        "typer.echo",
        "\n    print(",
    }

    assert [
        (name, each)
        for name, source in sources.items()
        for each in past - allowed.get(name, set())
        if each in source
    ] == []
