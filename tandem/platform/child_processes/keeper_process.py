"""The keeper's program: waits for its parent to end, and then ends the parent's children.

    python keeper_process.py TOKEN WORK_PLACE < a pipe that the parent holds

It runs by path in an interpreter without packages, so it imports nothing of ours.
"""
# ruff: noqa: PTH108, PTH123, PTH207, PTH208 (pathlib takes as long to import as all the rest)

import glob
import os
import shutil
import signal
import sys
import time

MARK = "TANDEM_KEEPER"
"""The environment variable of a kept process; its value is the keeper's token."""

# Services have up to five seconds for calls in flight.
_GRACE_SECONDS = 6.0
_GIVE_UP_SECONDS = 60.0
_LOOK_SECONDS = 0.05
# A process that starts as its parent ends gets the mark a moment later.
_EMPTY_LOOK_COUNT = 3


def region_prefix(token: str) -> str:
    """Returns the name prefix of the shared memory of a keeper's processes."""
    return f"tandem_{token}_"


def work_folder_prefix(token: str) -> str:
    """Returns the name prefix of the work folders of a keeper's processes."""
    return f"tandem-{token}-"


def main(token: str, work_place: str) -> None:
    """Returns when the parent and all its processes have ended."""
    # Signals that end a parent often go to its whole group.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    end_all(token)
    for path in glob.glob(f"/dev/shm/{region_prefix(token)}*"):
        _remove(path)
    place = glob.escape(work_place)
    for path in glob.glob(f"{place}/{work_folder_prefix(token)}*"):
        shutil.rmtree(path, ignore_errors=True)


def end_all(token: str, grace_seconds: float = _GRACE_SECONDS) -> None:
    """Ends every marked process: SIGTERM first, then SIGKILL."""
    asked: set[int] = set()
    deadline_time = time.monotonic() + grace_seconds
    empty_look_count = 0
    while empty_look_count < _EMPTY_LOOK_COUNT:
        if time.monotonic() > deadline_time + _GIVE_UP_SECONDS:
            return  # The kernel holds the rest, for example on a disk that hangs.
        marked = marked_processes(token)
        empty_look_count = 0 if marked else empty_look_count + 1
        for pid in marked:
            is_late = time.monotonic() > deadline_time
            if is_late or pid not in asked:
                asked.add(pid)
                _send(pid, signal.SIGKILL if is_late else signal.SIGTERM)
        time.sleep(_LOOK_SECONDS)


def marked_processes(token: str) -> list[int]:
    """Returns the ids of running marked processes, without zombies."""
    mark = f"{MARK}={token}".encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.append(int(name))
        except OSError:  # It has just ended, or belongs to another user.
            continue
    return found


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # It has just ended, or changed its user.
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
