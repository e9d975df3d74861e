"""Converts batches of an ingest stream, and their outcomes, from and to messages."""

from collections.abc import Iterator, Sequence

from tandem.contract.filtering.attribute_wire import ATTRIBUTES_WIRE
from tandem.contract.record_wire import RecordWire
from tandem.contract.search.answer import IngestOutcome
from tandem.contract.search.answer_wire import CONTENT_WIRE, ITEM_ERROR_WIRE, TEXT_USE_WIRE
from tandem.contract.search.ingest import IncomingItem, IngestBatch
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.errors import TandemError
from tandem.v1 import index_service_pb2, search_service_pb2


def batch_from_proto(request: search_service_pb2.IngestItemsRequest) -> IngestBatch:
    """Returns the batch; an item that is malformed holds its error instead of a content."""
    return IngestBatch(
        request.index_id,
        list(map(_item_from_proto, request.items)),
        request.request_id,
        TRUNCATION_POLICY_WIRE.from_proto(request.truncation_policy),
    )


def outcomes_to_proto(outcomes: Sequence[IngestOutcome]) -> search_service_pb2.IngestItemsResponse:
    """Returns the answer to a batch."""
    return search_service_pb2.IngestItemsResponse(
        results=map(_OUTCOME_WIRE.to_proto, outcomes),
        consistency_token=outcomes[0].consistency_token,
    )


def batch_to_proto(batch: IngestBatch) -> search_service_pb2.IngestItemsRequest:
    """Returns the message of a batch."""
    return search_service_pb2.IngestItemsRequest(
        index_id=batch.index_id,
        items=map(_item_to_proto, batch.items),
        request_id=batch.request_id,
        truncation_policy=TRUNCATION_POLICY_WIRE.to_proto(batch.truncation_policy),
    )


def outcomes_from_proto(
    response: search_service_pb2.IngestItemsResponse,
) -> Iterator[IngestOutcome]:
    """Yields the outcomes of one batch in order."""
    for result in response.results:
        yield _OUTCOME_WIRE.from_proto(result, consistency_token=response.consistency_token)


_OUTCOME_WIRE = RecordWire(
    IngestOutcome,
    search_service_pb2.IngestResult,
    own=["consistency_token"],
    error=ITEM_ERROR_WIRE,
    text_use=TEXT_USE_WIRE,
)


_ITEM_WIRE = RecordWire(
    IncomingItem, index_service_pb2.Item, content=CONTENT_WIRE, attributes=ATTRIBUTES_WIRE
)


def _item_from_proto(item: index_service_pb2.Item) -> IncomingItem:
    try:
        return _ITEM_WIRE.from_proto(item)
    except TandemError as error:
        return IncomingItem(item.item_id, error.kept())


def _item_to_proto(item: IncomingItem) -> index_service_pb2.Item:
    # An empty item takes the place of one that cannot be sent, and is refused: so its outcome comes
    # in order, and a sender that waits for it gets it.
    is_refused = isinstance(item.content, TandemError)
    return index_service_pb2.Item() if is_refused else _ITEM_WIRE.to_proto(item)
