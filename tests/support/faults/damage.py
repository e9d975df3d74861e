"""Damages files as a failing disk or a stray program does."""

import random
from enum import StrEnum
from pathlib import Path

PAGE_BYTES = 4096
# LMDB's two meta pages, which say where everything else is.
META_BYTES = 2 * PAGE_BYTES


class Damage(StrEnum):
    """Names the kinds of damage to a file."""

    FLIP = "flip"
    """One to four bits are flipped anywhere."""
    ZERO = "zero"
    """One page is zeroed."""
    CUT = "cut"
    """The file is cut off anywhere."""
    META = "meta"
    """One to four bits are flipped in the first two pages."""


def damage(path: Path, kind: Damage, rng: random.Random) -> str:
    """Damages the file; returns a description of what was done where."""
    content = bytearray(path.read_bytes())
    match kind:
        case Damage.FLIP | Damage.META:
            limit = len(content) if kind is Damage.FLIP else min(META_BYTES, len(content))
            bits = rng.sample(range(8 * limit), rng.randint(1, 4))
            for bit in bits:
                content[bit // 8] ^= 1 << bit % 8
            done = f"bits {bits}"
        case Damage.ZERO:
            start = rng.randrange(0, len(content), PAGE_BYTES)
            end = min(start + PAGE_BYTES, len(content))
            content[start:end] = bytes(end - start)
            done = f"bytes {start} to {end} zeroed"
        case Damage.CUT:
            size = rng.randrange(len(content))
            del content[size:]
            done = f"cut to {size} bytes"
    path.write_bytes(content)
    return f"{path.name}: {done}"
