"""Reads tensors from a pickle that torch wrote, without running code from it."""

import errno
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tandem.platform.files.json_object import FileInvalid, check_file


class PickleRefused(ValueError):
    """A file is damaged, or contains more than tensors and plain values."""


def read_pickled_tensors(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Returns what was saved, on the CPU.

    torch's restricted reader creates only tensors and plain values, so an untrusted file runs
    nothing. Raises PickleRefused, and OSError for a file that cannot be read.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises almost anything for damaged bytes
        # This errno is torch's own, of an archive that is cut short; others are the system's.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        _check_kind(path)
        # torch's own message advises to load the file unsafely.
        raise PickleRefused(
            f"{path} is damaged, or would run code, and is not opened any further "
            f"({type(error).__name__})"
        ) from error


def is_plain(tensor: Tensor) -> bool:
    """Returns whether a tensor has its numbers one by one in memory, as most have.

    A view can declare a few bytes to be a tensor of any size, which a copy would allocate.
    """
    is_dense = tensor.layout is torch.strided and tensor.device.type == "cpu"
    if not is_dense or tensor.is_quantized:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()


def _check_kind(path: Path) -> None:
    """Raises PickleRefused with a better reason for an empty file, or a pointer of git-lfs."""
    try:
        check_file(path)
    except FileInvalid as error:
        raise PickleRefused(str(error)) from error
