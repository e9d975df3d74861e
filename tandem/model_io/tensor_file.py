"""Writes files of tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError


@contextmanager
def failures_named(path: Path) -> Iterator[None]:
    """Has safetensors fail like any other write, on a full disk for instance.

    Raises OSError naming the file.
    """
    try:
        yield
    except SafetensorError as error:
        raise OSError(f"{path} was not written: {error}") from error
