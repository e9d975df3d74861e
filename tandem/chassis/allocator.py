"""Bounds the freed memory that the C library keeps."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Rule:
    """Describes a setting of glibc's malloc: mallopt(3)'s number, its variable and our value."""

    parameter: int
    variable: str
    value: int


_RULES = (
    # Without it each thread keeps an arena of its own peak size; gRPC's threads come and go.
    _Rule(-8, "MALLOC_ARENA_MAX", 2),
    # A large picture's pixels are in blocks of 16 MiB. Below glibc's own moving threshold of up to
    # 32 MiB they would stay with the process for as long as anything small lies above them.
    _Rule(-3, "MALLOC_MMAP_THRESHOLD_", 4 << 20),
    # Less than this stays, because each call would page-fault it in again.
    _Rule(-1, "MALLOC_TRIM_THRESHOLD_", 8 << 20),
)


def bound_memory() -> None:
    """Configures glibc's malloc, except what the environment sets; a no-op elsewhere."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for rule in _RULES:
        if rule.variable not in os.environ:
            mallopt(rule.parameter, rule.value)
