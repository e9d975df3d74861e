"""Folders and files that are their owner's alone: what callers sent is in them.

Whatever the umask that a process was started with: a shell's usual one lets every account of the
machine read what is made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

_UMASK = 0o077


def keep_files_private() -> None:
    """Makes all that this process makes from now on private; for a whole process."""
    os.umask(_UMASK)


@contextmanager
def private_files() -> Iterator[None]:
    """Makes all that is made meanwhile private. The umask is the process's, for all its threads."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)
