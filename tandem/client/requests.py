"""What the SDK's calls send, and how it reads a refusal. Shared by both clients."""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import grpc

from tandem.attribute_wire import attributes_to_proto
from tandem.attributes import Attributes
from tandem.client.query import SURROGATE, NewContent, content_to_proto
from tandem.content import TruncationPolicy
from tandem.errors import (
    DeadlineExceeded,
    InternalFault,
    ItemIdInvalid,
    ServiceUnavailable,
    TandemError,
    error_from_reason,
)
from tandem.identifiers import check_index_id, check_item_id
from tandem.v1 import index_service_pb2, search_service_pb2

NewItem = tuple[str, NewContent] | tuple[str, NewContent, Attributes]
"""Item id, content and, where there are any, attributes."""

MAX_BATCH_ITEM_COUNT = 64
# The server takes 64 MiB a message; half leaves room for a large last picture.
_MAX_BATCH_BYTES = 32 * 2**20

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A name that stands for several orchestrators is called on each in turn, but for those that say
    # they are not serving: before they are warm, and from SIGTERM on, while they still answer.
    (
        "grpc.service_config",
        '{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}}',
    ),
    # Whoever was added to the name is looked for when another leaves it, not half a minute later.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # The defaults back off up to 120 s: one that was restarted would stay unseen for that long, and
    # none would be left when the next is.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_send_message_length", 64 * 2**20),
    ("grpc.max_receive_message_length", 64 * 2**20),
)


def remove_request(
    item_ids: Iterable[str], index_id: str, request_id: str = ""
) -> search_service_pb2.RemoveItemsRequest:
    """Returns the message; raises IndexIdInvalid, and ItemIdInvalid for the first such id."""
    return search_service_pb2.RemoveItemsRequest(
        index_id=check_index_id(index_id),
        item_ids=map(check_item_id, item_ids),
        request_id=request_id,
    )


class IngestRequests:
    """The batches of one ingest stream, and the error that ended them early, if one did.

    gRPC reads the batches in a thread of its own and tells nobody what they raise, so the caller
    asks here when the stream breaks.
    """

    def __init__(
        self,
        items: Iterable[NewItem],
        index_id: str,
        batch_item_count: int,
        request_id: str = "",
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> None:
        """Raises IndexIdInvalid at once; each item is judged by the server.

        Batches have `request_id` with their number behind it, or none where it is empty.
        """
        self._items = iter(items)
        self._empty_batch = search_service_pb2.IngestItemsRequest(
            index_id=check_index_id(index_id),
            truncation_policy=f"TRUNCATION_POLICY_{truncation_policy.name}",
        )
        self._batch_item_count = max(1, min(batch_item_count, MAX_BATCH_ITEM_COUNT))
        self._request_id = request_id
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[search_service_pb2.IngestItemsRequest]:
        try:
            for number, request in enumerate(self._batches()):
                if self._request_id:
                    request.request_id = f"{self._request_id}/{number}"
                yield request
        except Exception as error:
            self.error = error
            raise

    def _batches(self) -> Iterator[search_service_pb2.IngestItemsRequest]:
        while batch := list(islice(self._items, self._batch_item_count)):
            yield from _split_by_bytes(batch, self._empty_batch)


def request_metadata() -> tuple[tuple[str, str], ...]:
    """Returns metadata with a new request id, by which every service's log names this call."""
    return (("x-request-id", uuid.uuid4().hex),)


def error_of(error: grpc.RpcError, target: str) -> TandemError:
    """Returns the named error that a failed call carries."""
    metadata = _text_metadata(error.trailing_metadata())
    code, details = error.code(), error.details() or ""
    if reason := metadata.get("tandem-reason"):
        return error_from_reason(reason, details, {})
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(what=f"the call to {target}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return ServiceUnavailable(service=target, why=details)
    return InternalFault(why=f"{target} answered {code.name}: {details}")


def _split_by_bytes(
    batch: list[NewItem], empty_batch: search_service_pb2.IngestItemsRequest
) -> Iterator[search_service_pb2.IngestItemsRequest]:
    request = _copied(empty_batch)
    byte_count = 0
    for new_item in batch:
        item_id, content = new_item[:2]
        attributes = new_item[2] if len(new_item) == 3 else {}
        try:
            item = index_service_pb2.Item(
                item_id=item_id,
                content=content_to_proto(content),
                attributes=attributes_to_proto(attributes),
            )
        except UnicodeEncodeError as error:
            raise ItemIdInvalid(item_id=repr(item_id), why=f"it or its text {SURROGATE}") from error
        item_bytes = item.ByteSize()
        if request.items and byte_count + item_bytes > _MAX_BATCH_BYTES:
            yield request
            request = _copied(empty_batch)
            byte_count = 0
        byte_count += item_bytes
        request.items.append(item)
    yield request


def _copied(
    request: search_service_pb2.IngestItemsRequest,
) -> search_service_pb2.IngestItemsRequest:
    copied = search_service_pb2.IngestItemsRequest()
    copied.CopyFrom(request)
    return copied


def _text_metadata(metadata: object) -> Mapping[str, str]:
    pairs = metadata if metadata is not None else ()
    return {key: value for key, value in pairs if isinstance(value, str)}  # type: ignore[attr-defined]
