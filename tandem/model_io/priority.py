"""Whose inference goes first where several wait for one model."""

import enum


class Priority(enum.Enum):
    """What an inference is for; its level says whether it goes first.

    Only queries go first, which are short. Pairs and items take turns as they come: under a
    constant load of searches, items would otherwise never be encoded (decision 19).
    """

    QUERY = "query"
    """A query's encoding, which all of its search waits for."""
    CANARY = "canary"
    """A made-up inference, whose lateness would be taken for a fault."""
    RERANK = "rerank"
    """A chunk of pairs."""
    INGEST = "ingest"
    """An item's encoding."""

    @property
    def level(self) -> int:
        """From 1 to LEVEL_COUNT; the smaller number goes first, as in Triton."""
        return 1 if self in (Priority.QUERY, Priority.CANARY) else LEVEL_COUNT


LEVEL_COUNT = 2
