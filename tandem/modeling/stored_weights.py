"""Checks a weights file by its header, before any memory is allocated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tandem.platform.files.json_object import FileInvalid, check_file

_FLOATS: Final = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_INTEGERS: Final = {
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_SHOWN_COUNT: Final = 6


@dataclass(frozen=True, slots=True)
class StoredWeight:
    """Describes one tensor of a file."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def is_floating_point(self) -> bool:
        return self.dtype in _FLOATS


def stored_weights(path: Path) -> dict[str, StoredWeight]:
    """Returns a safetensors file's weights by name; raises FileInvalid naming a damaged file."""
    check_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  no mapping
            return {
                name: StoredWeight(str(each.get_dtype()), tuple(each.get_shape()))
                for name, each in slices.items()
            }
    except (OSError, SafetensorError) as error:
        raise FileInvalid(
            f"{path} is damaged or cut short, or not a safetensors file ({error}); copy or "
            "download it again"
        ) from error


def weights_like(tensors: Mapping[str, Tensor]) -> dict[str, StoredWeight]:
    """Returns what `stored_weights` would return for loaded tensors."""
    names = {dtype: name for name, dtype in (_FLOATS | _INTEGERS).items()}
    return {
        name: StoredWeight(names.get(each.dtype, str(each.dtype)), tuple(each.shape))
        for name, each in tensors.items()
    }


def weight_faults(
    stored: Mapping[str, StoredWeight], wanted: Mapping[str, StoredWeight]
) -> list[str]:
    """Returns the differences between stored and wanted weights, in words.

    Any floating-point type may replace another. Each kind of fault lists its first names.
    """
    shared = [name for name in wanted if name in stored]
    kinds = {
        "missing": sorted(wanted.keys() - stored.keys()),
        "unexpected": sorted(stored.keys() - wanted.keys()),
        "of another shape": [
            f"{name} {list(stored[name].shape)} instead of {list(wanted[name].shape)}"
            for name in shared
            if stored[name].shape != wanted[name].shape
        ],
        "of another type": [
            f"{name} {stored[name].dtype} instead of {wanted[name].dtype}"
            for name in shared
            if not _is_taken(stored[name], wanted[name])
        ],
    }
    return [f"{kind} {listed(names)}" for kind, names in kinds.items() if names]


def not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Returns the names of weights that are NaN or infinite; empty if there are none."""
    return listed(
        [
            name
            for name, tensor in tensors.items()
            if tensor.is_floating_point() and not tensor.isfinite().all()
        ]
    )


def _is_taken(stored: StoredWeight, wanted: StoredWeight) -> bool:
    if wanted.is_floating_point:
        return stored.is_floating_point
    return stored.dtype == wanted.dtype


def listed(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - _SHOWN_COUNT:,} more" if len(names) > _SHOWN_COUNT else ""
    return ", ".join(names[:_SHOWN_COUNT]) + more
