"""Which seeds an option takes."""

from typing import Final

MAX_SEED: Final = 2**32 - 1
"""torch, random and NumPy take each from 0 up to it."""
