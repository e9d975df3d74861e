"""Shows which process swaps versions in a model repository, and its progress."""

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

ATTENDANCE_NAME = "swaps.lock"


class SwapAttendance:
    """Shows that this process swaps versions, while this object and the process live."""

    def __init__(self, repository: Path) -> None:
        """Begins the attendance; raises OSError if the repository is not writable."""
        self._descriptor = os.open(_path(repository), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        with suppress(BlockingIOError):  # of another process that also swaps
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.record_stage("")

    def record_stage(self, stage: str) -> None:
        """Records the current stage; does nothing if the disk is full."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, stage.encode(), 0)

    def close(self) -> None:
        self._close()


def is_attended(repository: Path) -> bool:
    """Returns whether a process performs requested swaps."""
    try:
        descriptor = os.open(_path(repository), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def swap_stage(repository: Path) -> str:
    """Returns the current stage; empty if there is none."""
    try:
        return _path(repository).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _path(repository: Path) -> Path:
    return repository / ATTENDANCE_NAME
