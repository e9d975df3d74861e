"""What a service's C library keeps of memory that was freed: enough to be quick, and bounded."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Rule:
    """One setting of glibc's malloc: mallopt(3)'s number for it, the variable that goes before it,
    and ours."""

    parameter: int
    variable: str
    value: int


_RULES = (
    # Or each thread keeps room of its own at the peak that it once had; gRPC's come and go.
    _Rule(-8, "MALLOC_ARENA_MAX", 2),
    # A large picture's pixels are in blocks of 16 MiB. Below glibc's own moving threshold of up to
    # 32 MiB they would stay with the process for as long as anything small lies above them.
    _Rule(-3, "MALLOC_MMAP_THRESHOLD_", 4 << 20),
    # Less than this is not handed back, or each call would fault its memory in again.
    _Rule(-1, "MALLOC_TRIM_THRESHOLD_", 8 << 20),
)


def bound_memory() -> None:
    """Sets glibc's malloc up, but for what the environment has set; elsewhere does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for rule in _RULES:
        if rule.variable not in os.environ:
            mallopt(rule.parameter, rule.value)
