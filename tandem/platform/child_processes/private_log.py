"""Opens the log of a child process, and bounds it."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

MAX_LOG_BYTES = 64 << 20


def private_log(path: Path) -> BinaryIO:
    """Opens a log for appending, private because it may contain parts of contents."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def bound_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Moves the lines of a log that is too large to `path`.1, as far as there is space.

    Its process continues at the log's beginning; what it writes during the move is lost.
    """
    with suppress(OSError):
        if path.stat().st_size > max_bytes:
            older_path = path.with_name(f"{path.name}.1")
            with suppress(OSError), path.open("rb") as full, private_log(older_path) as older:
                older.truncate(0)
                shutil.copyfileobj(full, older)
            os.truncate(path, 0)
