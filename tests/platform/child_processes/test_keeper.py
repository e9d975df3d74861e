"""What a process started ends with it, however it ends itself."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tandem.platform.child_processes.child_environment import python_environment
from tandem.platform.child_processes.keeper import ProcessKeeper, work_place
from tandem.platform.child_processes.keeper_process import end_all, marked_processes

# A parent of a child in a session of its own, which has a child in another: as Triton's stubs are.
PARENT = """
import subprocess, sys, time
from tandem.platform.child_processes.keeper import ProcessKeeper
keeper = ProcessKeeper()
subprocess.Popen(
    ["sh", "-c", "setsid sleep 600 & exec sleep 600"], env=keeper.mark(), start_new_session=True
)
print(keeper.mark()["TANDEM_KEEPER"], flush=True)
time.sleep(600)
"""
GRACE_SECONDS = 0.2


@contextmanager
def parent() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Gives the process, and its keeper's token once both children run."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", PARENT],
        stdout=subprocess.PIPE,
        env=python_environment() | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        token = process.stdout.readline().decode().strip()
        wait_until(lambda: len(marked_processes(token)) == 2)
        yield process, token
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Returns as soon as it is; fails after half a minute."""
    deadline_time = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline_time
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_every_end_of_a_parent_ends_its_children(number: signal.Signals) -> None:
    with parent() as (process, token):
        process.send_signal(number)
        process.wait(30)

        wait_until(lambda: not marked_processes(token))


def test_closed_a_keeper_leaves_nothing() -> None:
    keeper = ProcessKeeper()
    child = subprocess.Popen(["sleep", "600"], env=keeper.mark())
    other = subprocess.Popen(["sleep", "600"])
    region = Path("/dev/shm") / f"{keeper.region_prefix}1"
    folder = work_place() / f"{keeper.work_folder_prefix}1"
    region.touch()
    folder.mkdir()
    try:
        keeper.close()

        assert child.wait(0) == -signal.SIGTERM
        assert other.poll() is None
        assert not region.exists()
        assert not folder.exists()
    finally:
        for process in (child, other):
            process.kill()
            process.wait()
        region.unlink(missing_ok=True)


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    with ProcessKeeper() as keeper:
        mark = keeper.mark()
        child = subprocess.Popen(
            ["sh", "-c", "trap '' TERM; echo; exec sleep 600"], env=mark, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.close()

        end_all(mark["TANDEM_KEEPER"], GRACE_SECONDS)

        assert child.wait(0) == -signal.SIGKILL


def test_a_work_folder_has_no_sign_in_its_path_that_a_shell_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton's Python backend hands its paths to one; a TMPDIR that is gone is passed over too."""
    for name in ("with space", "with$sign", "gone"):
        place = tmp_path / name
        if name != "gone":
            place.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(place))

        assert work_place() == Path("/tmp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert work_place() == tmp_path
