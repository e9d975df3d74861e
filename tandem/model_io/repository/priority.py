"""Orders inferences that wait for the same model."""

import enum


class Priority(enum.Enum):
    """Lists the purposes of an inference; the level is its priority.

    Only queries, which are short, go first. Pairs and items are served in order of arrival:
    otherwise a constant load of searches would starve the encoding of items (decision 19).
    """

    QUERY = "query"
    """Encoding a query, which the whole search waits for."""
    CANARY = "canary"
    """A synthetic inference, whose delay would count as a fault."""
    RERANK = "rerank"
    """A chunk of pairs."""
    INGEST = "ingest"
    """Encoding an item."""

    @property
    def level(self) -> int:
        """Returns 1 to LEVEL_COUNT; the smaller number goes first, as in Triton."""
        return 1 if self in (Priority.QUERY, Priority.CANARY) else LEVEL_COUNT


LEVEL_COUNT = 2
