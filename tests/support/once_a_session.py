"""Makes once what all workers of a test session share, and ends it with the last of them; a plugin.

What one worker makes lies in the folder of the session, and a lock file beside it lets the others
wait for it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

_LEAVING: list[Callable[[], object]] = []


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """Returns the temporary folder that all workers of this session have."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Returns the folder that `make` has filled, which the first worker calls and others wait for.

    Tests must not change it.
    """
    folder = session_folder(factory) / name
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            make(part)
            part.rename(folder)
    return folder


def at_session_end(leave: Callable[[], object]) -> None:
    """Calls `leave` once this worker has run its last test; it may wait for the other workers."""
    _LEAVING.append(leave)


@contextmanager
def locked(path: Path, kind: int = fcntl.LOCK_EX) -> Iterator[BinaryIO]:
    """Holds the lock file, which the kernel frees however this process ends."""
    with path.open("ab") as file:
        fcntl.flock(file, kind)
        yield file


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Leaves what is shared, before pytest-xdist tells that this worker has finished.

    Then it would give the worker ten seconds to end, and here there is no limit.
    """
    while _LEAVING:
        _LEAVING.pop()()
