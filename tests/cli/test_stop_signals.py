"""What tells a command to stop is heard, wherever the command is."""

import signal
import subprocess
import sys
import time

import pytest

from tandem.cli.terminal.stop_signals import StopSignals

WAITING = """
import signal
from tandem.cli.terminal.stop_signals import StopSignals
signal.signal(signal.SIGTERM, lambda *_: None)
print("waits", flush=True)
for _ in range(300):
    with StopSignals() as stopping:
        while not stopping.wait(0):  # where a lock would be held half of the time
            pass
print(stopping.number, stopping.status)
"""
RAISING = """
import time
from tandem.cli.terminal.stop_signals import StopSignals
with StopSignals() as stopping:
    try:
        with stopping.raising():
            print("works", flush=True)
            time.sleep(600)
    finally:
        print("cleans", flush=True)
        time.sleep(0.5)
        print("cleaned", flush=True)
"""


def started(program: str, *before: str) -> subprocess.Popen[str]:
    """Starts it; returns when it has said its first word."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_storm_of_signals_does_not_stop_a_wait_for_good() -> None:
    """A handler that took the lock that the waiting holds would: threading.Event's does."""
    process = started(WAITING)
    try:
        deadline_time = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline_time:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.0002)
        assert process.communicate(timeout=60)[0] == "15 143\n"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_work_that_cannot_look_is_ended_once(number: signal.Signals) -> None:
    process = started(RAISING)
    try:
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stdout.readline() == "cleans\n"
        process.send_signal(number)
        assert process.communicate(timeout=60)[0] == "cleaned\n"
        assert process.returncode == 128 + number
    finally:
        process.kill()
        process.wait()


def test_under_nohup_the_end_of_the_terminal_is_ignored() -> None:
    """It is what nohup is for."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_IGN, signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)
