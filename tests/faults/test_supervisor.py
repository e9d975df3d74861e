"""Tests that processes are started, paused and killed with their children."""

import signal
import sys
from pathlib import Path

from tests.support.faults.condition import wait_until
from tests.support.faults.supervisor import Ending, Supervised

# Counts aloud, and starts a child that outlives it unless the whole group is killed.
COUNTING = """
import itertools, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("child", child.pid, flush=True)
for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.01)
"""


def start(program: str, tmp_path: Path, **environment: str) -> Supervised:
    """Starts a Python program."""
    return Supervised([sys.executable, "-c", program], tmp_path / "log", environment)


async def test_a_killed_process_ends_its_children(tmp_path: Path) -> None:
    """SIGKILL goes to the group, and is reported as the ending."""
    process = start(COUNTING, tmp_path)
    await wait_until(lambda: "1\n" in process.log(), 60, "it counts")
    child_id = int(process.log().split()[1])
    assert process.ending() is None

    process.kill()

    assert process.ending() == Ending(killed_by=signal.SIGKILL)
    await wait_until(lambda: is_gone(child_id), 60, "the child is gone")
    process.kill()  # a second call is not an error


async def test_a_paused_process_is_alive_and_silent(tmp_path: Path) -> None:
    """It continues when it is resumed."""
    process = start(COUNTING, tmp_path)
    try:
        await wait_until(lambda: "1\n" in process.log(), 60, "it counts")
        process.pause()
        await wait_until(lambda: state(process.process_id) == "T", 60, "it is stopped")
        counted = process.log()

        assert process.ending() is None
        assert process.log() == counted
        process.resume()
        await wait_until(lambda: process.log() != counted, 60, "it counts on")
        assert process.log().startswith(counted)
    finally:
        process.kill()


def test_an_exit_code_is_reported(tmp_path: Path) -> None:
    """A process that ends by itself was not killed."""
    process = start("import os, sys; sys.exit(int(os.environ['CODE']))", tmp_path, CODE="3")

    assert process.wait() == Ending(exit_code=3)


def test_logs_are_kept_separately(tmp_path: Path) -> None:
    """One file has the output of every process."""
    for word in ("first", "second"):
        process = start(f"print('{word}')", tmp_path)
        process.wait()
        assert process.log() == f"{word}\n"

    assert (tmp_path / "log").read_text() == "first\nsecond\n"


def is_gone(process_id: int) -> bool:
    """Returns whether there is no such process; a zombie counts as gone."""
    return state(process_id) in ("", "Z")


def state(process_id: int) -> str:
    """Returns the process's state as Linux names it, for example T for stopped."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""
