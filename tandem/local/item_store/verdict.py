"""Checks a store in a child process, which damage may kill."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from signal import Signals
from typing import IO, Any

from tandem.local.item_store.check import CheckDepth as CheckDepth
from tandem.local.item_store.check import Show
from tandem.local.item_store.check import Verdict as Verdict
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.refused import StoreRefused
from tandem.platform.child_processes.child_environment import python_command, python_environment

MEMORY_BYTES = 2 << 30
_LEAST_TIMEOUT_SECONDS = 60.0
# Far slower than any usable disk, so that only a check in an endless loop is cut short.
_SLOWEST_BYTES_PER_SECOND = 10 << 20


def verify_in_child(
    path: Path,
    depth: CheckDepth = CheckDepth.VALUES,
    *,
    memory_bytes: int = MEMORY_BYTES,
    timeout_seconds: float | None = None,
    show: Show | None = None,
) -> Verdict:
    """Checks the store or backup at the path in a child process, even while a process writes.

    A child that dies or exceeds the timeout counts as damage; the default timeout is longer than
    any sound store of that size needs. `show` gets the progress and its total. Raises StoreRefused
    where there is no store, a newer schema, or too little memory.
    """
    try:
        size_bytes = (path / DATA_NAME).stat().st_size
    except OSError as error:
        raise StoreRefused(f"{path} has no item store ({error.strerror})") from None
    if timeout_seconds is None:
        timeout_seconds = _LEAST_TIMEOUT_SECONDS + size_bytes / _SLOWEST_BYTES_PER_SECOND
    expired = threading.Event()
    with tempfile.TemporaryFile() as errors, _start(path, depth, memory_bytes, errors) as child:

        def expire() -> None:
            expired.set()
            child.kill()

        timer = threading.Timer(timeout_seconds, expire)
        timer.start()
        try:
            answer = _last_answer(child.stdout or (), show or _show_nothing)
            status = child.wait()
        finally:
            timer.cancel()
            child.kill()
        if status == 0 and answer is not None:
            if "refusal" in answer:
                raise StoreRefused(answer["refusal"])
            return Verdict(**answer | {"path": path})
        if expired.is_set():
            return _damaged(path, f"reading it did not finish within {timeout_seconds:.0f} s")
        if status < 0:
            return _damaged(path, f"reading it killed a process by {Signals(-status).name}")
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {status}"
        return _damaged(path, f"it cannot be read: {why}")


def _start(
    path: Path, depth: CheckDepth, memory_bytes: int, errors: IO[bytes]
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_command(
            ["-m", "tandem.local.item_store.check", str(path), depth, str(memory_bytes)]
        ),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        # Nothing here computes, so numpy's library needs no threads.
        env=python_environment() | {"OPENBLAS_NUM_THREADS": "1"},
    )


def _last_answer(lines: Iterable[str], show: Show) -> dict[str, Any] | None:
    """Shows progress until the child ends; returns its findings, None if it had none."""
    answer: dict[str, Any] | None = None
    for line in lines:
        message: dict[str, Any] = json.loads(line)
        if "done" in message:
            show(message["done"], message["total"])
        else:
            answer = message
    return answer


def _show_nothing(done: int, total: int) -> None:
    pass


def _damaged(path: Path, why: str) -> Verdict:
    return Verdict(path, [why])


def damage_of(path: Path, largest_checked_bytes: int) -> Sequence[str]:
    """Returns the faults that forbid opening the store, as found in a child process.

    Checks every page of a file up to that size, and only the pages on the way to keys in a larger
    one.
    """
    data = path / DATA_NAME
    if not data.exists():
        return ()
    is_small = data.stat().st_size <= largest_checked_bytes
    return verify_in_child(path, CheckDepth.PAGES if is_small else CheckDepth.WALK).damage
