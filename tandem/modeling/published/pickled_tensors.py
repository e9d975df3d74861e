"""Reads tensors from a pickle that torch wrote, without running code from it."""

from pathlib import Path
from typing import Any

import torch

from tandem.model_io.json_object import FileInvalid, check_file


class PickleRefused(ValueError):
    """A file is damaged, or contains more than tensors and plain values."""


def read_pickled_tensors(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Returns what was saved, on the CPU.

    torch's restricted reader creates only tensors and plain values, so an untrusted file runs
    nothing. Raises PickleRefused, and OSError for a file that cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises almost anything for damaged bytes
        _check_kind(path)
        # torch's own message advises to load the file unsafely.
        raise PickleRefused(
            f"{path} is damaged, or would run code, and is not opened any further "
            f"({type(error).__name__})"
        ) from error


def _check_kind(path: Path) -> None:
    """Raises PickleRefused with a better reason for an empty file, or a pointer of git-lfs."""
    try:
        check_file(path)
    except FileInvalid as error:
        raise PickleRefused(str(error)) from error
