"""Defines the range of seeds."""

from typing import Final

MAX_SEED: Final = 2**32 - 1
"""The largest seed that torch, random and NumPy all accept."""
