"""Replaces a file atomically: writes next to it, syncs, and renames."""

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile


def write_whole(path: Path, write: Callable[[Path], object], mode: int = 0o644) -> None:
    """Lets `write` fill a file next to `path`, which then replaces it.

    Readers find the old file or the new, even after a crash or power failure. If `write` raises,
    the old file stays.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(fresh)
        fresh.chmod(mode)
        sync(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    sync(path.parent)


def write_text_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a text as UTF-8, atomically."""
    write_whole(path, lambda fresh: fresh.write_text(text, encoding="utf-8"), mode)


def check_writable(folder: Path, option: str) -> None:
    """Raises ValueError, with the option to change, where no file can be written in the folder.

    Where there is none yet, the nearest folder above it counts.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    try:
        TemporaryFile(dir=there).close()  # no mode says that /proc takes no file of root's
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({there}: {error.strerror}); choose another {option}"
        ) from error


def sync(*paths: Path) -> None:
    """Makes files or the names in folders durable; syncing a file covers only its contents."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
