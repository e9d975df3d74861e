"""Defines the range of seeds."""

from typing import Final

MAX_SEED: Final = 2**32 - 1
"""The largest seed that torch, random and NumPy all accept."""
MAX_SEED_COUNT: Final = 1_000
"""More runs than one command can train; the list of a mistyped number would fill the memory."""
