"""process.allocator: what a process holds after it let go of what was large."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tandem.chassis.process.memory import MOST_GROWN_BYTES, Trimmer

MIB = 1 << 20

# Blocks as Pillow's, freed under a small one that stays: the least that holds a heap.
PROGRAM = f"""
import ctypes, sys
from pathlib import Path
from tandem.chassis.process.memory import bound_memory

def held():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if "bounded" in sys.argv:
    bound_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.free(libc.malloc(31 * {MIB}))  # what moves glibc's own threshold past such blocks
before = held()
blocks = [libc.malloc(16 * {MIB}) for _ in range(6)]
for block in blocks:
    ctypes.memset(block, 1, 16 * {MIB})
small = libc.malloc(100_000)
ctypes.memset(small, 1, 100_000)
for block in blocks:
    libc.free(block)
print(held() - before)
"""


@pytest.mark.parametrize("is_bounded", [True, False])
def test_large_blocks_are_returned_to_the_system(is_bounded: bool) -> None:
    """The control is glibc by itself."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", PROGRAM, *(["bounded"] if is_bounded else [])]

    held = int(subprocess.check_output(command, env=environment))

    assert (held < 8 * MIB) == is_bounded, held


def test_the_environment_takes_precedence() -> None:
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB)}
    command = [sys.executable, "-c", PROGRAM, "bounded"]

    assert int(subprocess.check_output(command, env=environment)) > 64 * MIB


# A request's 96 MiB in blocks as gRPC's, each below a small one that stays.
MANY_BLOCKS = f"""
import asyncio, ctypes, time
from tandem.chassis.process.memory import Trimmer, bound_memory, resident_bytes

async def main():
    bound_memory()
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    watching = asyncio.create_task(Trimmer().watch())
    await asyncio.sleep(0)
    before = resident_bytes()
    blocks = []
    for number in range(96 * 8):
        blocks.append(block := libc.malloc({MIB // 8}))
        ctypes.memset(block, 1, {MIB // 8})
        ctypes.memset(libc.malloc(100), 1, 100)
    for block in blocks:
        libc.free(block)
    print(resident_bytes() - before)
    # The look is due after two seconds; a busy machine may be late.
    end = time.monotonic() + (30 if watching and not watching.done() else 0)
    while resident_bytes() - before > 8 * {MIB} and time.monotonic() < end:
        await asyncio.sleep(0.1)
    print(resident_bytes() - before)

asyncio.run(main())
"""


@pytest.mark.parametrize("is_trimmed", [True, False])
def test_free_memory_between_small_blocks_is_returned(is_trimmed: bool) -> None:
    """The control is an operator's own rule for trimming, which is left to malloc."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    environment |= {} if is_trimmed else {"MALLOC_TRIM_THRESHOLD_": str(8 * MIB)}

    told = subprocess.check_output([sys.executable, "-c", MANY_BLOCKS], env=environment)

    freed, kept = map(int, told.split())
    assert freed > 64 * MIB
    assert (kept < 8 * MIB) == is_trimmed, kept


def test_a_trim_is_due_once_for_each_growth() -> None:
    trimmer = Trimmer()
    assert not trimmer.is_due()
    with grown(2 * MOST_GROWN_BYTES):
        assert trimmer.is_due()
        trimmer.trim()
        assert not trimmer.is_due()
    assert not trimmer.is_due()
    with grown(2 * MOST_GROWN_BYTES):
        assert trimmer.is_due()


@contextmanager
def grown(byte_count: int) -> Iterator[None]:
    """Grows this process by pages of the kernel's: malloc may have kept as many from before."""
    with mmap.mmap(-1, byte_count) as pages:
        for page in range(0, byte_count, mmap.PAGESIZE):
            pages[page] = 1
        yield


AGAIN = f"""
import ctypes, resource, sys
from tandem.chassis.process.memory import keep_activations

if "kept" in sys.argv:
    keep_activations()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for turn in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(16 * {MIB}) for _ in range(6)]
    for block in blocks:
        ctypes.memset(block, 1, 16 * {MIB})
    for block in reversed(blocks):
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize("is_kept", [True, False])
def test_memory_freed_by_an_inference_is_not_faulted_in_again(is_kept: bool) -> None:
    """The control is glibc by itself, which unmaps and maps 96 MiB each time."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", AGAIN, *(["kept"] if is_kept else [])]

    fault_count = int(subprocess.check_output(command, env=environment))

    assert (fault_count < 16) == is_kept, fault_count
