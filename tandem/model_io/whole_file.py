"""A file that is there whole or as it was: written beside, synced, and renamed into its place."""

import os
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object], mode: int = 0o644) -> None:
    """Has `write` fill a file beside `path`, which then takes its place.

    Whoever reads, and whatever kills or cuts the power, finds the old file or the new. What `write`
    raises is raised, and leaves the old.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(fresh)
        fresh.chmod(mode)
        _sync(fresh)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    _sync(path.parent)


def write_text_whole(path: Path, text: str) -> None:
    """Writes a text as UTF-8, whole."""
    write_whole(path, lambda fresh: fresh.write_text(text, encoding="utf-8"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
