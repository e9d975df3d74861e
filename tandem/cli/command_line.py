"""Parses commands, prints help and errors as plain text, and handles Ctrl-C."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

import typer
from typer.core import CompletionItem, TyperCommand, TyperGroup  # type: ignore[attr-defined]
from typer.main import get_command

from tandem.cli.options import with_help
from tandem.cli.refusals import OFFERED, print_error, suited
from tandem.cli.terminal.console import errors
from tandem.cli.terminal.stop_signals import Stopped
from tandem.errors import TandemError
from tandem.installation import PackageMissing, missing_package
from tandem.platform.child_processes.keeper import ProcessFailed

# The base of all usage errors, of which Typer exports only subclasses.
_WrongUse: type[Exception] = typer.BadParameter.__mro__[2]

INTERRUPTED_STATUS = 130
# What commands need as a whole, by where they are; others need what the missing package is in.
_EXTRAS: Final = {
    "evaluate.": "lab",
    "neighbours.": "lab",
    "train.": "lab",
    "serve.demo": "local",
}
_NAMED: Final = (ValueError, OSError, PackageMissing, ProcessFailed)
"""What a command may end with, besides a TandemError: a line for people, and no traceback."""
SETTINGS: dict[str, Any] = {"max_content_width": 100, "help_option_names": ["--help", "-h"]}


class Command(TyperCommand):
    """A command whose errors offer only options that it has."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parses the arguments, and notes the options for what an error advises."""
        options = (each for one in self.params for each in (*one.opts, *one.secondary_opts))
        OFFERED.set(frozenset(options))
        return super().parse_args(ctx, args)


Row: TypeAlias = tuple["str | Mapping[str, Row]", str]
"""Where a command is in this package, or its group's commands, and what it does in a sentence."""


class _Commands(Mapping[str, Any]):
    """The commands of a group, each built when it is first looked up."""

    def __init__(self, group: str, rows: Mapping[str, Row]) -> None:
        self._group = group
        self._rows = rows
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in self._built:
            self._built[name] = _built(self._group, name, *self._rows[name])
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _built(group: str, name: str, what: str | Mapping[str, Row], sentence: str) -> Any:  # noqa: ANN401
    """Returns a command or a group; imports the command's module.

    By a name of this package, in this place alone: the libraries of all commands take seconds to
    import, and some come with an extra. Raises PackageMissing without it.
    """
    if not isinstance(what, str):
        return CommandLine(what, name=name, help=sentence, no_args_is_help=True)
    place, _, function = what.partition(":")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    try:
        module = import_module(f"tandem.cli.{place}")
    except ModuleNotFoundError as error:
        extra = next((_EXTRAS[start] for start in _EXTRAS if place.startswith(start)), None)
        raise PackageMissing(f"{group} {name}", missing_package(error), extra) from error
    command = with_help(getattr(module, function))
    app.command(name, cls=Command)(command)
    return get_command(app)


class CommandLine(TyperGroup):
    """A group of commands. It prints usage errors through the console, like all output."""

    panels: ClassVar[Mapping[str, Mapping[str, Row]]] = {}
    """The commands under each heading of the help, in place of `rows`."""

    def __init__(self, rows: Mapping[str, Row] | None = None, **settings: Any) -> None:  # noqa: ANN401
        panels = self.panels if rows is None else {"Commands": rows}
        every = {name: row for shown in panels.values() for name, row in shown.items()}
        group = "tandem" if rows is None else f"tandem {settings['name']}"
        commands = _Commands(group, every)
        super().__init__(**settings | {"commands": commands, "rich_markup_mode": None})
        self._shown = panels

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Writes the commands under their headings, without importing them."""
        width = max(map(len, self.commands))
        for heading, rows in self._shown.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), said) for name, (_, said) in rows.items()])

    def shell_complete(self, ctx: typer.Context, incomplete: str) -> list[Any]:  # type: ignore[override]
        """Returns the commands that begin so, without importing them, and the options."""
        said = {name: row[1] for rows in self._shown.values() for name, row in rows.items()}
        fitting = (name for name in said if name.startswith(incomplete))
        commands = [CompletionItem(name, help=said[name]) for name in fitting]
        return commands + super(TyperGroup, self).shell_complete(ctx, incomplete)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Runs a command; exits with its status if `standalone_mode`."""

        def status_of() -> Any:  # noqa: ANN401
            return super(CommandLine, self).main(
                args, prog_name, complete_var, False, windows_expand_args, **extra
            )

        if not standalone_mode:
            return status_of()
        try:
            status = status_of()
        except _WrongUse as error:
            text = io.StringIO()
            error.show(file=text)  # type: ignore[attr-defined]
            errors.print(text.getvalue().rstrip("\n"))
            sys.exit(error.exit_code)  # type: ignore[attr-defined]
        except typer.Abort:
            errors.print("aborted; nothing was done")
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)

    def resolve_command(  # type: ignore[override]
        self, ctx: typer.Context, args: list[str]
    ) -> Any:  # noqa: ANN401
        """Returns the command of the first two words, if there is one, else of the first."""
        both = " ".join(args[:2])
        if len(args) > 1 and both in self.commands:
            return both, self.commands[both], args[2:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Runs a command; Ctrl-C ends it with a message and status 130."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            errors.print("interrupted")
            raise typer.Exit(INTERRUPTED_STATUS) from None


@contextmanager
def report_if_interrupted(kept: Callable[[], str]) -> Iterator[None]:
    """Makes Ctrl-C print what is kept and how to continue, and exit with status 130.

    SIGTERM and SIGHUP print it too, and end with their own status.
    """
    try:
        yield
    except KeyboardInterrupt:
        errors.print(f"interrupted: {kept()}")
        raise typer.Exit(INTERRUPTED_STATUS) from None
    except Stopped:
        with suppress(OSError):  # The terminal may have closed.
            errors.print(f"stopped: {kept()}")
        raise


def run(app: typer.Typer) -> int:
    """Runs the command line of this process and returns its exit status.

    A named error is a line on stderr and status 1. So is output that could not be written
    completely; a closed pipe is status 1 without a message.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        # So that commands clean up on these signals too; an ignored signal stays ignored.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)
    for stream in (sys.stdout, sys.stderr):
        # A terminal's encoding may lack letters of a caption, and an argument may not be UTF-8.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    status = _status(app)
    try:
        sys.stdout.flush()
    except OSError as error:
        # Otherwise Python tries again at exit, and reports it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            errors.print(f"the output could not be written whole: {error.strerror}")
        return status or 1
    return status


def _status(app: typer.Typer) -> int:
    try:
        app()
    except Stopped as end:
        with suppress(OSError):  # The terminal may have closed.
            errors.print("stopped before its end; nothing that it started is left")
        return int(str(end.code))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except TandemError as error:
        print_error(error)
        return 1
    except _NAMED as error:
        errors.print(suited(_described(error)))
        return 1
    return 0


def _leave(number: int, _frame: object) -> NoReturn:
    raise Stopped(128 + number)


def _described(error: Exception) -> str:
    """Returns the error's message; for a file, its name and the fault."""
    if isinstance(error, UnicodeEncodeError):
        what = repr(error.object)
        return f"{what} is not text: it has bytes that are not UTF-8, or a lone surrogate"
    if isinstance(error, UnicodeError):
        return f"not UTF-8: {error}; save it as UTF-8"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        # Not all of it in lower case: it may name a variable.
        return f"{os.fsdecode(error.filename)}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
