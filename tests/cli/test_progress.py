"""Long work tells how far it is, on a terminal and without one."""

from __future__ import annotations

import io
import threading

from tandem.cli.terminal.console import Terminal
from tandem.cli.terminal.progress import LongWork


def terminal(text: io.StringIO) -> Terminal:
    made = Terminal()
    made.file = text
    return made


def test_without_a_terminal_stages_are_lines() -> None:
    """One where a stage begins and one where it ends, and nothing drawn."""
    text, seconds = io.StringIO(), iter([0.0, 10.0, 20.0, 20.0, 95.0])
    with LongWork(terminal(text), clock=lambda: next(seconds)) as work:
        work.show("read", 0, 4000, unit="pictures")
        work.show("read", 2000)
        work.show("learn [/x]", 0, unit="steps")
        work.say("a word")

    assert text.getvalue().splitlines() == [
        "read: begins, 4,000 pictures",
        "read: ends after 20 s, 2,000 pictures",
        "learn [/x]: begins",
        "a word",
        "learn [/x]: ends after 0 s, 0 steps",
    ]


def test_each_minute_logs_the_remaining_time_without_a_bar() -> None:
    class Heard(io.StringIO):
        told = threading.Event()

        def write(self, text: str, /) -> int:
            if "left" in text:
                self.told.set()
            return super().write(text)

    text, seconds = Heard(), 0.0
    with LongWork(terminal(text), clock=lambda: seconds, line_seconds=0.01) as work:
        work.show("read", 0, 4000, unit="pictures")
        seconds = 30.0
        work.show("read", 1000, note="good [/x]")
        assert Heard.told.wait(30)

    assert "read: 1,000 of 4,000 pictures, 33/s, 1 min 30 s left, good [/x]" in text.getvalue()


def test_work_that_is_often_short_says_nothing_unless_it_is_long() -> None:
    """So a check of a small store has one line: what it found."""
    text = io.StringIO()
    with LongWork(terminal(text), often_short=True) as work:
        work.show("check", 0, 10)
        work.show("check", 10)

    assert text.getvalue() == ""
