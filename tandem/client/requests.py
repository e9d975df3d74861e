"""Builds the requests of both clients."""

import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tandem.client.arguments import checked_elements, checked_integer, checked_member
from tandem.client.item import NewItem as NewItem
from tandem.client.item import item_id_of
from tandem.client.results import IngestOutcome, ingest_outcomes
from tandem.client.sendable import checked_request_id, item_to_proto
from tandem.contract.content import TruncationPolicy
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_INGEST_ITEM_COUNT
from tandem.errors import ServerUnknown, TandemError
from tandem.v1 import index_service_pb2, search_service_pb2

_Refused: TypeAlias = dict[int, Callable[[IngestOutcome], IngestOutcome]]
"""The outcomes of a batch's items that cannot be sent, by their number."""

# The server's limit is 64 MiB; half leaves room for a large last image.
_MAX_BATCH_BYTES = 32 * 2**20
# A server ends a stream that is idle for some minutes.
_MAX_BATCH_SECONDS = 30.0

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # Call the orchestrators of a name in turn, except those that are NOT_SERVING: before they are
    # warm, and from SIGTERM on, while they still answer.
    (
        "grpc.service_config",
        '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}',
    ),
    # Resolve a name again when a server leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # The default backs off up to 120 s, in which a restarted server would go unnoticed.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Notices a dead connection after 20 s, also in a stream without a deadline. A slow server still
    # answers pings, in gRPC's own threads; a slow connection has 10 s. Our servers accept one ping
    # a second.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_send_message_length", 64 * 2**20),
    ("grpc.max_receive_message_length", 64 * 2**20),
)


def remove_request(
    item_ids: Iterable[str], index_id: str, request_id: str = ""
) -> search_service_pb2.RemoveItemsRequest:
    """Returns the message.

    Raises IndexIdInvalid, ItemIdInvalid for the first such id, and RequestMalformed for a str
    instead of ids.
    """
    return search_service_pb2.RemoveItemsRequest(
        index_id=check_index_id(index_id),
        item_ids=map(check_item_id, checked_elements("item_ids", item_ids, "send a list of ids")),
        request_id=checked_request_id(request_id),
    )


def remove_index_request(index_id: str) -> search_service_pb2.RemoveIndexRequest:
    """Returns the message; raises IndexIdInvalid."""
    return search_service_pb2.RemoveIndexRequest(index_id=check_index_id(index_id))


class IngestRequests:
    """The batches of one ingest stream, and the error that ended them early.

    gRPC reads the batches in its own thread and hides their exceptions, so the caller reads them
    here when the stream breaks. An item that cannot be sent is refused here, without the others.
    """

    def __init__(
        self,
        items: Iterable[NewItem],
        index_id: str,
        batch_item_count: int,
        request_id: str = "",
        truncation_policy: TruncationPolicy | str = TruncationPolicy.ERROR,
        *,
        target: str = "the server",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises IndexIdInvalid, RequestIdInvalid and RequestMalformed at once.

        Items are checked one by one.

        Each batch gets `request_id` with the batch's number, or none if it is empty.
        """
        policy = checked_member("truncation_policy", truncation_policy, TruncationPolicy)
        self._items = iter(items)
        self._empty_batch = search_service_pb2.IngestItemsRequest(
            index_id=check_index_id(index_id),
            truncation_policy=f"TRUNCATION_POLICY_{policy.name}",
        )
        self._batch_item_count = max(
            1, min(checked_integer("batch_item_count", batch_item_count), MAX_INGEST_ITEM_COUNT)
        )
        self._request_id = checked_request_id(request_id)
        self._target = target
        self._clock = clock
        # For each unanswered batch: its items, and those that cannot be sent.
        self._sent: deque[tuple[int, _Refused]] = deque()
        self._are_all_read = False
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[search_service_pb2.IngestItemsRequest]:
        try:
            for number, request in enumerate(self._batches()):
                if self._request_id:
                    request.request_id = f"{self._request_id}/{number}"
                yield request
            self._are_all_read = True
        except Exception as error:
            self.error = error
            raise

    def outcomes(self, response: search_service_pb2.IngestItemsResponse) -> Iterator[IngestOutcome]:
        """Yields the outcomes of the next batch's items in order; raises ServerUnknown."""
        item_count, refused = self._sent.popleft() if self._sent else (0, {})
        if len(response.results) != item_count:
            raise ServerUnknown(
                target=self._target,
                why=f"it answered {len(response.results)} results of {item_count} items",
            )
        for number, outcome in enumerate(ingest_outcomes(response)):
            yield refused[number](outcome) if number in refused else outcome

    def check_all_answered(self) -> None:
        """Raises ServerUnknown if a stream ended with OK but left a batch unanswered."""
        if self._sent or not self._are_all_read:
            raise ServerUnknown(
                target=self._target, why="it ended a stream without an answer to each batch"
            )

    def _batches(self) -> Iterator[search_service_pb2.IngestItemsRequest]:
        while batch := self._next_batch():
            yield from self._split_by_bytes(batch)

    def _next_batch(self) -> list[NewItem]:
        """Returns a full batch of items, or fewer if they arrive slowly.

        With a request id batches are always full, because a retry must have the same batches.
        """
        batch: list[NewItem] = []
        full_time = math.inf if self._request_id else self._clock() + _MAX_BATCH_SECONDS
        for item in self._items:
            batch.append(item)
            if len(batch) == self._batch_item_count or self._clock() >= full_time:
                break
        return batch

    def _split_by_bytes(
        self, batch: list[NewItem]
    ) -> Iterator[search_service_pb2.IngestItemsRequest]:
        request = _copied(self._empty_batch)
        refused: _Refused = {}
        byte_count = 0
        for new_item in batch:
            error = None
            try:
                item = item_to_proto(new_item)
            except TandemError as found:
                # An empty item takes its place, which the server refuses: so its outcome comes in
                # order, and a sender that waits for it gets it.
                item, error = index_service_pb2.Item(), found
            item_bytes = item.ByteSize()
            if request.items and byte_count + item_bytes > _MAX_BATCH_BYTES:
                yield self._noted(request, refused)
                request, refused, byte_count = _copied(self._empty_batch), {}, 0
            byte_count += item_bytes
            if error is not None:
                refused[len(request.items)] = partial(_refusal, item_id_of(new_item), error)
            request.items.append(item)
        yield self._noted(request, refused)

    def _noted(
        self, request: search_service_pb2.IngestItemsRequest, refused: _Refused
    ) -> search_service_pb2.IngestItemsRequest:
        # Before sending, because another thread reads the answer.
        self._sent.append((len(request.items), refused))
        return request


def _refusal(item_id: str, error: TandemError, answered: IngestOutcome) -> IngestOutcome:
    return replace(answered, item_id=item_id, error=error, text_use=None)


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Returns metadata with a new request id, which every service logs."""
    return (("x-request-id", uuid.uuid4().hex),)


def _copied(
    request: search_service_pb2.IngestItemsRequest,
) -> search_service_pb2.IngestItemsRequest:
    copied = search_service_pb2.IngestItemsRequest()
    copied.CopyFrom(request)
    return copied
