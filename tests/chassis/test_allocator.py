"""tandem.chassis.allocator: what a process holds after it let go of a large picture's memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MIB = 1 << 20

# Blocks as Pillow's, freed under a small one that stays: the least that holds a heap.
PROGRAM = f"""
import ctypes, sys
from pathlib import Path
from tandem.chassis.allocator import bound_memory

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
def test_large_blocks_go_back(is_bounded: bool) -> None:
    """The control is glibc by itself."""
    environment = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", PROGRAM, *(["bounded"] if is_bounded else [])]

    held = int(subprocess.check_output(command, env=environment))

    assert (held < 8 * MIB) == is_bounded, held


def test_what_the_environment_sets_is_left() -> None:
    """An operator may know better."""
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(32 * MIB)}
    command = [sys.executable, "-c", PROGRAM, "bounded"]

    assert int(subprocess.check_output(command, env=environment)) > 64 * MIB
