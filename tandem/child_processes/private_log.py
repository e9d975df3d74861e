"""Opens the log of a child process."""

import os
from pathlib import Path
from typing import BinaryIO


def private_log(path: Path) -> BinaryIO:
    """Opens a log for appending, private because it may contain parts of contents."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab")
