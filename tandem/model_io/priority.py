"""Whose inference goes first where several wait for one model."""

import enum


class Priority(enum.IntEnum):
    """What an inference is for; the smaller number goes first, as in Triton."""

    QUERY = 1
    """A query's encoding: short, and all of its search waits for it."""
    RERANK = 2
    """A chunk of pairs, or a canary."""
    INGEST = 3
    """An item's encoding: nobody is kept waiting who cannot wait."""
