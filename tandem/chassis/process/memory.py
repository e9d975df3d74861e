"""Bounds the freed memory that the C library keeps, and what the garbage collector walks."""

import asyncio
import ctypes
import gc
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Growth beyond this since the last trim is worth another.
MOST_GROWN_BYTES: Final = 32 << 20
_LOOK_SECONDS: Final = 2.0
_MEMORY: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


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


# For a process that runs a model itself. Page-faulting the memory of its activations in again takes
# a sixth of the time of an inference, so it keeps that memory.
_MODEL_RULES = (
    _Rule(-3, "MALLOC_MMAP_THRESHOLD_", 32 << 20),  # the most that glibc takes
    _Rule(-1, "MALLOC_TRIM_THRESHOLD_", 256 << 20),
)


def bound_memory() -> None:
    """Configures glibc's malloc, except what the environment sets; a no-op elsewhere."""
    _apply(_RULES)


def keep_activations() -> None:
    """Makes glibc's malloc keep up to 256 MiB for the next inference; a no-op elsewhere."""
    _apply(_MODEL_RULES)


def _apply(rules: Iterable[_Rule]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for rule in rules:
        if rule.variable not in os.environ:
            mallopt(rule.parameter, rule.value)


class Trimmer:
    """Hands free memory inside malloc's heaps back to the kernel, once the process has grown.

    A heap shrinks only from its top, so a small block that stays keeps everything below it: after
    200 messages of 8 MB, which gRPC holds in blocks of some KiB, 134 MiB.
    """

    def __init__(self) -> None:
        self._least_bytes = resident_bytes()

    async def watch(self) -> None:
        """Looks every two seconds, unless the environment says how malloc trims."""
        while "MALLOC_TRIM_THRESHOLD_" not in os.environ:
            await asyncio.sleep(_LOOK_SECONDS)
            if self.is_due():
                # In a thread: it takes milliseconds, in which allocations may wait.
                await asyncio.to_thread(self.trim)

    def is_due(self) -> bool:
        """Returns whether the process holds much more than the least since the last trim."""
        held_bytes = resident_bytes()
        self._least_bytes = min(self._least_bytes, held_bytes)
        return held_bytes - self._least_bytes > MOST_GROWN_BYTES

    def trim(self) -> None:
        """Trims every heap; a no-op without glibc."""
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        self._least_bytes = resident_bytes()


def set_long_lived_aside() -> None:
    """Frees the garbage of the start, and takes what is left out of every later collection.

    A full collection visits every object that can be in a reference cycle. Some 60,000 of them are
    modules, classes and messages' descriptors, which no collection frees: in a service that takes
    33 ms, during which it answers no call. Objects made later are collected as before, also those
    in a cycle with objects set aside.
    """
    gc.collect()
    gc.freeze()
    # The collector starts a full collection when the objects since the last one are a quarter of
    # those that the last one kept. So run one that keeps none, or the next would come late.
    gc.collect()


def resident_bytes() -> int:
    """Returns the memory that this process holds."""
    return int(_MEMORY.read_text().split()[1]) * _PAGE_BYTES
