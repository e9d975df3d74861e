"""Sends items of an ingest again that a busy server refused, and counts those with an outcome."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import TypeAlias

from tandem.client.arguments import checked_elements, mistyped
from tandem.client.calls.refusal import Pushback, pushback_of
from tandem.client.calls.retries import Retries, is_passing
from tandem.client.item import NewItem, item_id_of
from tandem.contract.search.answer import IngestOutcome
from tandem.errors import DeadlineExceeded, TandemError

_Refused: TypeAlias = tuple[NewItem, TandemError]

_ITEMS_REMEDY = "send a list or iterator of Item, (id, content) or (id, content, attributes)"


def may_be_stored_later(error: TandemError) -> bool:
    """Returns whether an ingest that is sent again may store what had this error."""
    # An ingest has no deadline: the one that passed is the server's own for a batch.
    return is_passing(error) or isinstance(error, DeadlineExceeded)


class IngestRounds:
    """The items of one ingest, as the streams that it needs.

    The first refusal that may pass ends a stream after the items that are on their way, and the
    next stream begins with those that were refused. So no more items are held than one stream has
    unanswered, and none is read that a server in trouble would refuse too.
    """

    def __init__(
        self,
        items: Iterable[NewItem],
        retries: Retries,
        batch_item_count: int,
        *,
        is_repeatable: bool,
    ) -> None:
        """Raises RequestMalformed for what is not a list or iterator."""
        self.batch_item_count = batch_item_count
        """The items of a batch: fewer after the server had too little time for one."""
        self._source = iter(checked_elements("items", items, _ITEMS_REMEDY))
        self._retries = retries
        self._is_repeatable = is_repeatable and retries.policy.max_attempt_count > 1
        self._sent: deque[NewItem] = deque()
        self._waiting: deque[_Refused] = deque()
        self._error: TandemError | None = None
        self._fruitless_count = 0
        self._note_progress()

    @property
    def waiting_count(self) -> int:
        """The items that are to be sent again."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[NewItem]:
        """Yields the items of the next stream."""
        again, self._waiting = self._waiting, deque()
        try:
            while self._error is None:
                item = again.popleft()[0] if again else next(self._source)
                self._sent.append(item)
                yield item
        except StopIteration:
            return
        finally:
            # In their order, because a later item may have the id of an earlier one.
            self._waiting.extend(again)

    def final(self, outcomes: Sequence[IngestOutcome]) -> list[IngestOutcome]:
        """Returns the next outcomes without those of items that are sent again."""
        kept: list[IngestOutcome] = []
        for outcome in outcomes:
            item = self._sent.popleft()
            if outcome.error is not None and self._is_repeated(outcome.error):
                self._waiting.append((item, outcome.error))
                self._error = outcome.error
                continue
            if outcome.error is None:
                self._note_progress()
                kept += self._replaced(outcome.item_id)
            kept.append(outcome)
        return kept

    def delay_seconds(self) -> float | None:
        """Returns how long to wait before the next stream; None if there is none."""
        if self._error is None:
            return None
        delay_seconds = self._retries.backoff_seconds(self._fruitless_count)
        pushback = pushback_of(self._error)
        if isinstance(pushback, float):
            delay_seconds = max(delay_seconds, pushback)
        self._fruitless_count += 1
        if isinstance(self._error, DeadlineExceeded):
            self.batch_item_count = max(1, self.batch_item_count // 2)
        self._error = None
        return delay_seconds

    def _is_repeated(self, error: TandemError) -> bool:
        pushback = pushback_of(error)
        if pushback is Pushback.NEVER or not may_be_stored_later(error):
            return False
        if not self._is_repeatable:
            return False
        # For good: with one shard down the others' items would be progress, and each wait the next.
        self._is_repeatable = self._retries.clock() + (pushback or 0.0) < self._give_up_time
        return self._is_repeatable

    def _note_progress(self) -> None:
        self._fruitless_count = 0
        self._give_up_time = self._retries.clock() + self._retries.policy.ingest_wait_seconds

    def _replaced(self, item_id: str) -> list[IngestOutcome]:
        """Returns the outcomes of waiting items whose id a later item was stored under."""
        replaced = [each for each in list(self._waiting) if item_id_of(each[0]) == item_id]
        for each in replaced:
            self._waiting.remove(each)
        return [IngestOutcome(item_id, error) for _, error in replaced]


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
