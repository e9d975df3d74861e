"""Makes new files and folders readable only by their owner, because they hold callers' contents.

A shell's usual umask lets every account of the machine read new files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

_UMASK = 0o077


def keep_files_private() -> None:
    """Makes all later files of this process private."""
    os.umask(_UMASK)


@contextmanager
def private_files() -> Iterator[None]:
    """Makes the files of the body private. The umask applies to all threads of the process."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)
