"""The list of commands, whose modules are imported when they are called."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import typer

from tandem.cli.app import PANELS, app
from tandem.cli.command_line import Row


def rows() -> Iterator[tuple[str, Any, Row]]:
    """Yields each command with its row, by its whole name."""
    root: Any = typer.main.get_command(app)
    for panel in PANELS.values():
        for name, (what, said) in panel.items():
            if isinstance(what, str):
                yield name, root.commands[name], (what, said)
                continue
            for each, row in what.items():
                yield f"{name} {each}", root.commands[name].commands[each], row


def test_each_row_says_what_the_command_says_itself() -> None:
    told = {name: row[1] for name, _, row in rows() if row[1]}
    helped = {name: command.help.partition("\n")[0] for name, command, row in rows() if row[1]}

    assert told == helped


def test_help_imports_no_command() -> None:
    program = (
        "import sys; from tandem.cli.app import app; app(['models', '--help'], 'tandem', "
        "standalone_mode=False); print([each for each in sys.modules if each in "
        "('grpc', 'numpy', 'torch', 'tandem.client') or each.startswith('tandem.cli.models')])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "[]"
