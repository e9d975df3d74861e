"""Counts the items of an ingest as their outcomes arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass

from tandem.client.arguments import mistyped
from tandem.contract.search.answer import IngestOutcome


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is."""

    stored_count: int
    """Items that are stored durably."""
    refused_count: int
    """Items that are not, each with the error of its outcome."""
    item_count: int | None
    """All items, if `items` has a length; otherwise None."""
    waiting_count: int = 0
    """Items that the server could not take just now, and that are sent again."""

    @property
    def done_count(self) -> int:
        """Items with an outcome."""
        return self.stored_count + self.refused_count


class ProgressCounter:
    """Tells a callback how far an ingest is, after each batch."""

    def __init__(
        self, items: Iterable[object], tell: Callable[[IngestProgress], None] | None
    ) -> None:
        """Raises RequestMalformed unless `tell` can be called."""
        if tell is not None and not callable(tell):
            raise mistyped("progress", tell, "send a function")
        self._tell = tell
        self._item_count = len(items) if isinstance(items, Sized) else None
        self._stored_count = self._refused_count = 0

    def note(self, outcomes: Sequence[IngestOutcome], waiting_count: int = 0) -> None:
        """Counts the outcomes of a batch, and raises what the callback raises."""
        refused_count = sum(outcome.error is not None for outcome in outcomes)
        self._refused_count += refused_count
        self._stored_count += len(outcomes) - refused_count
        if self._tell is not None:
            self._tell(
                IngestProgress(
                    self._stored_count, self._refused_count, self._item_count, waiting_count
                )
            )
