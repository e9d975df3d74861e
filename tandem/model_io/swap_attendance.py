"""Who makes the swaps that are asked for in a model repository, and how far it has come."""

import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from tandem.model_io.manifest import JOINT_ENCODER

ATTENDANCE_NAME = "swaps.lock"


class SwapAttendance:
    """Says to others that swaps are made here, for as long as this object or its process lives."""

    def __init__(self, repository: Path) -> None:
        """Raises OSError where the repository cannot be written to, and so takes no swaps."""
        self._descriptor = os.open(_path(repository), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._close = weakref.finalize(self, os.close, self._descriptor)
        with suppress(BlockingIOError):  # another's, who attends as well
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.tell("")

    def tell(self, stage: str) -> None:
        """Says what is being done; nothing where no disk takes it."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, stage.encode(), 0)

    def close(self) -> None:
        """Attends no more."""
        self._close()


def is_attended(repository: Path) -> bool:
    """Returns whether somebody makes the swaps that are asked for."""
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
    """Returns what is being done; empty where nothing is, or nobody says."""
    try:
        return _path(repository).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _path(repository: Path) -> Path:
    return repository / JOINT_ENCODER / ATTENDANCE_NAME
