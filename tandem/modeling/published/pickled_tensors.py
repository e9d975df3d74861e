"""Tensors out of a file that torch wrote as a pickle: read, and nothing of it run."""

from pathlib import Path
from typing import Any

import torch


class PickleRefused(ValueError):
    """A file is damaged, or asks for more than tensors and plain values."""


def read_pickled_tensors(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Returns what was saved, on the CPU.

    torch's reader makes tensors and plain values and nothing else, so that a file that someone
    sends may run nothing. Raises PickleRefused, and OSError for a file that cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # of damaged bytes it raises whatever its steps stumble over
        # Not torch's own words, which advise to load the file unsafely.
        raise PickleRefused(
            f"{path} is damaged, or would run code, and is not opened any further "
            f"({type(error).__name__})"
        ) from error
