"""Prints results to stdout and errors to stderr, always as plain text.

Brackets, emoji names and control characters come from values, such as paths, ids, captions and
errors; they never control the terminal.
"""

import re
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

# Control characters except the line feed, lone surrogates, line separators, and characters that
# change the text's direction.
_UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_SHORT = {"\t": r"\t", "\r": r"\r", "\n": r"\n"}


def shown(text: str) -> str:
    r"""Returns the text with unprintable characters, except the line feed, as escapes like \x1b."""
    return _UNPRINTABLE.sub(_escaped, text)


def one_line(text: str) -> str:
    r"""Returns `shown` with line feeds as \n too: for a value that is part of a line or a cell."""
    return shown(text).replace("\n", _SHORT["\n"])


class Terminal(Console):
    """A console that prints every str literally and completely."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)
        # Rich stores COLUMNS once; we look the terminal's width up when needed.
        self._width = None
        self.is_held_back = False
        """Prints nothing: a command's --json object is all of its output."""

    @property
    def is_live(self) -> bool:
        """Returns whether the output is a terminal, whatever FORCE_COLOR says."""
        return not self.file.closed and self.file.isatty()

    def print(self, *objects: Any, **options: Any) -> None:  # noqa: ANN401 (as rich has it)
        """Prints text without wrapping its lines."""
        if not self.is_held_back:
            super().print(*objects, **{"soft_wrap": True} | options)

    def rows(self, rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> None:
        """Prints lines of columns: numbers, except those of `left`."""
        for line in aligned(rows, left):
            self.print(line)

    def rule(self, title: Any = "", **_: Any) -> None:  # noqa: ANN401
        """Prints a heading completely, however long it is."""
        dashes = "--" if self.options.ascii_only else "──"
        self.print(f"{dashes} {one_line(str(title))}")

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401
        """Returns a str as literal text, for rich."""
        return super().render_str(
            shown(text), **options | {"markup": False, "emoji": False, "highlight": False}
        )

    def refusal(self, reason: str, message: str) -> None:
        """Prints a named error on one line."""
        self.print(Text(shown(reason), style="bold red"), one_line(message))


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> list[str]:
    """Returns lines of columns, of which no cell wraps: numbers, except the columns of `left`."""
    shown_rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown_rows, strict=True)]
    return [
        "  ".join(
            cell + pad if place in left else pad + cell
            for place, cell in enumerate(row)
            for pad in (" " * (widths[place] - cell_len(cell)),)
        ).rstrip()
        for row in shown_rows
    ]


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


out = Terminal()
errors = Terminal(stderr=True)
