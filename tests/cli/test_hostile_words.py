"""Whatever is typed, no command ends by it with a traceback, and what it prints has all of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.cli.command_line import run as run_line
from tests.support.grid import sampled

HOSTILE = [
    "[/x]",
    "[red]a[/]",
    "[link=x]",
    ":smile:",
    "\x1b]0;title\x07\x1b[31m",
    "a\rb\nc\td",
    "\u202efdp",
    "half\udcff",
    "👩\u200d🚀",
    "$\\frac{$",
    "%s {0} {x}",
]
OURS = (ValueError, OSError)
NOWHERE = "127.0.0.1:1"


def commands() -> Iterator[list[str]]:
    """Yields each command's names."""
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        yield from ([name, each] for each in below) if below else ([name],)


def status_of(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs the command line as the process does."""
    monkeypatch.setattr(sys, "argv", ["tandem", *arguments])
    return run_line(app)


def assert_tells(error: str, word: str) -> None:
    """The word is there, with what drives a terminal as some escape of it."""
    assert not set("\x1b\r\x07\u202e") & set(error)
    error.encode()
    for part in re.findall(r"\[/x\]|\w{3,}", word):
        assert part in error


COMMANDS = list(commands())


@pytest.mark.parametrize("command", sampled(COMMANDS), ids=" ".join)
def test_a_word_too_much_is_refused_whole(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in HOSTILE:
        status = status_of([*command, f"--{word}"], monkeypatch)

        error = capsys.readouterr().err
        assert status == 2
        assert_tells(error, word.partition("=")[0])


CASES = [
    ["search", "x", "--index", "{}", "--address", NOWHERE],
    ["export", "{}", "all.parquet", "--address", NOWHERE],
    ["search", "x", "--where", "{} {}", "--address", NOWHERE],
    ["search", "x", "--image", "{}", "--address", NOWHERE],
    ["search", "--encoding", "{}", "--address", NOWHERE],
    ["search", "--queries", "{}", "--address", NOWHERE],
    ["search", "x", "--target-modality", "{}", "--address", NOWHERE],
    ["ingest", "{}", "--address", NOWHERE],
    ["ingest", "folder:{}", "--address", NOWHERE],
    ["ingest", "refused:{}", "--address", NOWHERE],
    ["ingest", "scenes", "--split", "{}", "--address", NOWHERE],
    ["ingest", "scenes", "--count", "4", "--index", "{}", "--address", NOWHERE],
    ["up", "--ingest", "{}"],
    ["up", "--ingest", "scenes", "--index", "{}"],
    ["evaluate", "{}", "--address", NOWHERE],
    ["evaluate", "folder:{}", "--address", NOWHERE],
    ["evaluate", "scenes", "--split", "{}", "--address", NOWHERE],
    ["evaluate", "scenes", "--distractors", "{}", "--address", NOWHERE],
    ["evaluate", "--queries", "{}", "--index", "a", "--address", NOWHERE],
    ["evaluate", "--gate", "{}", "--address", NOWHERE],
    ["index", "compare", "a", "b", "--queries", "{}", "--address", NOWHERE],
    ["calibrate", "--queries", "{}", "--address", NOWHERE],
    ["calibrate", "--corpus", "scenes", "--count", "4", "--index", "{}", "--address", NOWHERE],
    ["compare", "a={}"],
    ["golden", "start", "new", "--captions", "{}", "--address", NOWHERE],
    ["golden", "start", "new", "--queries", "file", "--system", "{}", "--address", NOWHERE],
    ["golden", "status", "{}"],
    ["index", "tune", "a", "--parameter", "{}"],
    ["models", "list", "--model-repository", "{}"],
    ["models", "swap", "{}", "--model-repository", "{}"],
    ["models", "remove", "--model-repository", "{}", "--yes"],
    ["index", "backup", "{}", "--shard-address", NOWHERE],
    ["index", "drop", "{}", "--yes", "--address", NOWHERE],
    ["search", "x", "--address", "{}"],
    ["health", "{}"],
    ["certificates", "file/{}"],
    ["shard", "verify", "{}"],
    ["shard", "backup", "{}", "{}"],
    ["shard", "restore", "{}", "{}"],
    ["shard", "grow", "{}", "1"],
    ["token", "new", "a", "--scope", "{}"],
    ["train", "{}"],
]


@pytest.mark.parametrize("case", sampled(CASES, fault=lambda case: case[0]), ids=" ".join)
def test_a_value_is_refused_by_its_words(
    case: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A status of failure and words, without a traceback and without driving the terminal."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for word in HOSTILE:
        status = status_of([each.replace("{}", word) for each in case], monkeypatch)

        error = capsys.readouterr().err
        assert status in (1, 2), (word, error)
        assert_tells(error, word)


@pytest.mark.parametrize(
    ("command", "columns"),
    sampled([(command, columns) for columns in ("20", "80") for command in COMMANDS]),
)
def test_help_has_whole_names_of_options(
    command: list[str], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name that can be typed, in a narrow terminal too."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERMINAL_WIDTH", columns)
    root = typer.main.get_command(app)
    found = root
    for name in command:
        found = found.commands[name]  # type: ignore[attr-defined]

    result = CliRunner().invoke(app, [*command, "--help"])

    assert result.exit_code == 0
    assert "…" not in result.stdout
    words = set(result.stdout.replace(",", " ").split())
    for parameter in found.params:
        if parameter.param_type_name == "option":
            assert set(parameter.opts) <= words


def _process(arguments: list[str], stdout: int | Path, **environment: str) -> tuple[int, str]:
    """Runs the command in a process; returns its status and its stderr."""
    with (
        Path(os.devnull if isinstance(stdout, int) else stdout).open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "tandem.cli", *arguments],
            stdout=stdout if isinstance(stdout, int) else file,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        ) as process,
    ):
        if process.stdout is not None:
            process.stdout.close()  # the reader leaves before anything is written
        _, error = process.communicate(timeout=120)
    return process.returncode, error


def test_output_that_cannot_be_written_fails_the_command() -> None:
    """A closed pipe is not reported, a full disk is; neither exits with status 0."""
    arguments = ["token", "new", "a[/x]"]
    left_status, left_error = _process(arguments, subprocess.PIPE)
    full_status, full_error = _process(arguments, Path("/dev/full"))

    assert left_status not in (0, 120)
    assert "Traceback" not in left_error
    assert "Broken" not in left_error
    assert full_status == 1
    assert "No space left on device" in full_error
    assert "Errno" not in full_error


def test_a_terminal_without_the_letters_gets_their_escapes() -> None:
    status, error = _process(
        ["compare", "a=👩"], subprocess.PIPE, PYTHONIOENCODING="ascii", PYTHONUTF8="0"
    )

    assert status == 1
    assert r"\U0001f469" in error
