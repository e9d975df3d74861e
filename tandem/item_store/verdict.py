"""Whether a store is sound, found out in a process of its own."""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import IO, Any

from tandem.child_processes.child_environment import python_command, python_environment
from tandem.item_store.check import Depth as Depth
from tandem.item_store.check import Show
from tandem.item_store.environment import DATA_NAME
from tandem.item_store.refused import StoreRefused

MEMORY_BYTES = 2 << 30
_LEAST_TIMEOUT_SECONDS = 60.0
# Far below any disk worth having, so that only a check that runs in circles is cut short.
_SLOWEST_BYTES_PER_SECOND = 10 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found."""

    path: Path
    damage: tuple[str, ...]
    """Faults for which the store must not be opened."""
    corrupt_items: tuple[str, ...]
    """What is wrong with single items, at most a hundred; the others can be used."""
    corrupt_item_count: int
    item_count: int
    sequence: int
    has_writer: bool
    """A process was writing, so that LMDB's list of free pages was not checked."""

    @property
    def is_sound(self) -> bool:
        """Says whether nothing at all was found."""
        return not self.damage and not self.corrupt_item_count


def verify_in_child(
    path: Path,
    depth: Depth = Depth.VALUES,
    *,
    memory_bytes: int = MEMORY_BYTES,
    timeout_seconds: float | None = None,
    show: Show | None = None,
) -> Verdict:
    """Checks the store or backup at the path in a child process, beside a writer or without one.

    A child that dies, by a signal for example, or has no answer in time (unset is more than any
    sound store of that size needs) is damage. `show` is told how much is done of what total.
    Raises StoreRefused where there is no store, one of a newer schema, or too little memory.
    """
    try:
        size_bytes = (path / DATA_NAME).stat().st_size
    except OSError as error:
        raise StoreRefused(f"{path} has no item store in it ({error.strerror})") from None
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
            if answer["refusal"]:
                raise StoreRefused(answer["refusal"])
            return Verdict(
                path=path,
                damage=tuple(answer["damage"]),
                corrupt_items=tuple(answer["corrupt_items"]),
                corrupt_item_count=answer["corrupt_item_count"],
                item_count=answer["item_count"],
                sequence=answer["sequence"],
                has_writer=answer["has_writer"],
            )
        if expired.is_set():
            return _damaged(path, f"reading it did not end in {timeout_seconds:.0f} s")
        if status < 0:
            return _damaged(path, f"reading it ended a process by {Signals(-status).name}")
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip().splitlines()
        return _damaged(path, f"it cannot be read: {told[-1] if told else f'exit code {status}'}")


def _start(path: Path, depth: Depth, memory_bytes: int, errors: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        python_command(["-m", "tandem.item_store.check", str(path), depth, str(memory_bytes)]),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        # No threads of a library that nothing here computes with.
        env=python_environment() | {"OPENBLAS_NUM_THREADS": "1"},
    )


def _last_answer(lines: Iterable[str], show: Show) -> dict[str, Any] | None:
    """Shows progress until the child ends; returns its last words, None where it had no answer."""
    answer: dict[str, Any] | None = None
    for line in lines:
        told: dict[str, Any] = json.loads(line)
        if "damage" in told:
            answer = told
        else:
            show(told["done"], told["total"])
    return answer


def _show_nothing(done: int, total: int) -> None:
    pass


def _damaged(path: Path, why: str) -> Verdict:
    return Verdict(path, (why,), (), 0, 0, 0, has_writer=False)
