"""Whose inference goes first where several wait for one model."""

import enum


class Priority(enum.IntEnum):
    """What an inference is for; the smaller number goes first, as in Triton.

    Only queries go first, which are short. Pairs and items take turns as they come: under a
    constant load of searches, items would otherwise never be encoded (decision 19).
    """

    QUERY = 1
    """A query's encoding, which all of its search waits for, or a canary."""
    RERANK = 2
    """A chunk of pairs."""
    INGEST = 2
    """An item's encoding."""
