"""Divides an ingest into batches, and tells the outcomes of those that were sent."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from tandem.client.arguments import checked_integer, checked_member
from tandem.client.item import NewItem, item_id_of
from tandem.client.sendable import checked_item, checked_request_id
from tandem.contract.content import TruncationPolicy, content_bytes
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.identifiers import check_index_id
from tandem.contract.limits import MAX_INGEST_ITEM_COUNT, parts_within
from tandem.contract.search.answer import IngestOutcome
from tandem.contract.search.ingest import IncomingItem, IngestBatch
from tandem.errors import ServerUnknown, TandemError

# The server's limit is 64 MiB; half leaves room for a large last image.
MAX_PART_BYTES = 32 * 2**20
# It also limits the fields of a message, to 300,000 (contract/methods.py). Each is counted as so
# many bytes, of which half a message never has more. A word of a list is one field, and an
# attribute has four besides.
_FIELD_BYTES = 112
_ATTRIBUTE_FIELDS = 4
# A server ends a stream that is idle for some minutes.
_MAX_BATCH_SECONDS = 30.0


class IngestBatches:
    """Yields the batches of one ingest stream. An item that cannot be sent holds its error."""

    def __init__(
        self,
        items: Iterable[NewItem],
        index_id: str,
        batch_item_count: int,
        request_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises IndexIdInvalid, RequestIdInvalid and RequestMalformed at once.

        Items are checked one by one.

        Each batch gets `request_id` with the batch's number, or none if it is empty.
        """
        policy = checked_member("truncation_policy", truncation_policy, TruncationPolicy)
        self._items = iter(items)
        self._empty_batch = IngestBatch(check_index_id(index_id), (), "", policy)
        self._batch_item_count = max(
            1, min(checked_integer("batch_item_count", batch_item_count), MAX_INGEST_ITEM_COUNT)
        )
        self._request_id = checked_request_id(request_id)
        self._clock = clock

    def __iter__(self) -> Iterator[IngestBatch]:
        number = 0
        while taken := self._next_items():
            for items in parts_within(map(_checked, taken), _size_bytes, MAX_PART_BYTES):
                request_id = f"{self._request_id}/{number}" if self._request_id else ""
                yield replace(self._empty_batch, items=items, request_id=request_id)
                number += 1

    def _next_items(self) -> list[NewItem]:
        """Returns the items of a full batch, or fewer if they arrive slowly.

        With a request id batches are always full, because a retry must have the same batches.
        """
        batch: list[NewItem] = []
        full_time = math.inf if self._request_id else self._clock() + _MAX_BATCH_SECONDS
        for item in self._items:
            batch.append(item)
            if len(batch) == self._batch_item_count or self._clock() >= full_time:
                break
        return batch


class SentBatches:
    """Yields batches to send, matches their answers, and keeps the error that ended them early.

    gRPC reads the batches in its own thread and hides their exceptions, so the caller reads them
    here when the stream breaks.
    """

    def __init__(self, batches: Iterable[IngestBatch], target: str) -> None:
        self._batches = batches
        self._target = target
        self._sent: deque[Sequence[IncomingItem]] = deque()
        """The items of each batch without an answer."""
        self._are_all_read = False
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[IngestBatch]:
        try:
            for batch in self._batches:
                # Before sending, because another thread reads the answer.
                self._sent.append(batch.items)
                yield batch
            self._are_all_read = True
        except Exception as error:
            self.error = error
            raise

    def outcomes(self, answered: Sequence[IngestOutcome]) -> list[IngestOutcome]:
        """Returns the outcomes of the next batch's items, in order; raises ServerUnknown."""
        items = self._sent.popleft() if self._sent else ()
        if len(answered) != len(items):
            raise ServerUnknown(
                target=self._target,
                why=f"it answered {len(answered)} results of {len(items)} items",
            )
        return [
            replace(outcome, item_id=item.item_id, error=item.content, text_use=None)
            if isinstance(item.content, TandemError)
            else outcome
            for item, outcome in zip(items, answered, strict=True)
        ]

    def check_all_answered(self) -> None:
        """Raises ServerUnknown if a stream ended with OK but left a batch unanswered."""
        if self._sent or not self._are_all_read:
            raise ServerUnknown(
                target=self._target, why="it ended a stream without an answer to each batch"
            )


def attributes_bytes(attributes: Attributes) -> int:
    """Returns about how much of a message the attributes take, of its bytes or of its fields."""
    return sum(
        len(name)
        + len(str(value).encode())
        + _FIELD_BYTES * (_ATTRIBUTE_FIELDS + (len(value) if isinstance(value, tuple) else 0))
        for name, value in attributes.items()
    )


def _checked(item: NewItem) -> IncomingItem:
    try:
        return checked_item(item)
    except TandemError as error:
        return IncomingItem(item_id_of(item), error.kept())


def _size_bytes(item: IncomingItem) -> int:
    """Returns about how much of a message the item takes."""
    if isinstance(item.content, TandemError):
        return 0
    return len(item.item_id) + len(content_bytes(item.content)) + attributes_bytes(item.attributes)
