"""ContentService: converts messages, and calls the readers of items and the document scorer."""

from collections.abc import Callable
from typing import TypeVar

import grpc

from orchestrator_svc.wire.search_wire import fetched_content
from tandem.chassis.process.side_thread import converted
from tandem.contract.attribute_wire import attributes_to_proto
from tandem.contract.content import Content, Encoding
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import cost_to_proto
from tandem.contract.limits import DEFAULT_PAGE_SIZE, MAX_CONTENT_COUNT, check_batch_size
from tandem.errors import ContentMissing, TandemError
from tandem.search.contents.content_room import ContentBudget
from tandem.search.contents.documents import DocumentScorer, GivenDocument, ScoredDocument
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.index_list import IndexList
from tandem.v1 import content_service_pb2 as pb
from tandem.v1 import content_service_pb2_grpc, index_service_pb2
from tandem.wire import (
    content_from_proto,
    embedding_to_proto,
    item_error_to_proto,
    text_use_to_proto,
    truncation_policy_from_proto,
)

M = TypeVar("M")
T = TypeVar("T")


class ContentServicer(content_service_pb2_grpc.ContentServiceServicer):
    """Serves stored items, and the models on contents that are not stored."""

    def __init__(
        self,
        stored_items: StoredItems,
        documents: DocumentScorer,
        content_budget: ContentBudget,
        *,
        index_list: IndexList,
        default_timeout_seconds: float,
        max_timeout_seconds: float,
    ) -> None:
        self._index_list = index_list
        self._stored_items = stored_items
        self._documents = documents
        self._content_budget = content_budget
        self._default_timeout_seconds = default_timeout_seconds
        self._max_timeout_seconds = max_timeout_seconds

    async def FetchItems(
        self, request: pb.FetchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.FetchItemsResponse:
        """Returns the items that exist, in the order of the ids."""
        self._content_budget.hold_for(context)
        async with self._index_list.naming():
            found = await self._stored_items.fetch(
                request.index_id, request.item_ids, self._deadline(context)
            )
        return pb.FetchItemsResponse(
            items=[
                index_service_pb2.Item(
                    item_id=item_id,
                    content=fetched_content(found[item_id]),
                    attributes=attributes_to_proto(found[item_id].attributes),
                )
                for item_id in dict.fromkeys(request.item_ids)
                if item_id in found
            ]
        )

    async def ListItems(
        self, request: pb.ListItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListItemsResponse:
        """Returns one page of ids."""
        size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE
        async with self._index_list.naming():
            item_ids, last = await self._stored_items.page(
                request.index_id, request.page_token, size, self._deadline(context)
            )
        return pb.ListItemsResponse(item_ids=item_ids, next_page_token=last)

    async def EmbedContents(
        self, request: pb.EmbedContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EmbedContentsResponse:
        """Returns each content's embedding or error."""
        check_batch_size("contents", len(request.contents), MAX_CONTENT_COUNT)
        contents = await converted(
            lambda: [_or_error(content_from_proto, each) for each in request.contents]
        )
        made = await self._documents.embed(
            contents,
            truncation_policy_from_proto(request.truncation_policy),
            self._deadline(context),
        )
        return pb.EmbedContentsResponse(
            results=map(_embedded, made.outcomes),
            model_fingerprint=made.fingerprint,
            model_version=made.model_version,
            cost=cost_to_proto(made.cost),
        )

    async def ScoreDocuments(
        self, request: pb.ScoreDocumentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreDocumentsResponse:
        """Returns each document's score or error."""
        query, documents = await converted(lambda: _given(request))
        async with self._index_list.naming():
            scored = await self._documents.score(
                query,
                documents,
                request.index_id,
                truncation_policy_from_proto(request.truncation_policy),
                self._deadline(context),
            )
        return pb.ScoreDocumentsResponse(
            scores=map(_score, scored.documents),
            model_fingerprint=scored.fingerprint,
            reranker=scored.reranker,
            cost=cost_to_proto(scored.cost),
            probability_withheld="ERROR_REASON_UNCALIBRATED" if scored.is_uncalibrated else None,
        )

    def _deadline(self, context: grpc.aio.ServicerContext) -> Deadline:
        return Deadline.of_call(
            context,
            default_seconds=self._default_timeout_seconds,
            max_seconds=self._max_timeout_seconds,
        )


def _given(
    request: pb.ScoreDocumentsRequest,
) -> tuple[Content, list[GivenDocument | TandemError]]:
    documents = [_or_error(_document, each) for each in request.documents]
    return content_from_proto(request.query), documents


def _document(message: pb.Document) -> GivenDocument:
    match message.WhichOneof("source"):
        case "content":
            return content_from_proto(message.content)
        case "item_id":
            return message.item_id
        case _:
            raise ContentMissing


def _or_error(convert: Callable[[M], T], message: M) -> T | TandemError:
    try:
        return convert(message)
    except TandemError as error:
        return error.kept()


def _embedded(outcome: Encoding | TandemError) -> pb.EmbedResult:
    if isinstance(outcome, TandemError):
        return pb.EmbedResult(error=item_error_to_proto(outcome))
    use = outcome.text_use
    return pb.EmbedResult(
        embedding=embedding_to_proto(outcome.embedding),
        text_use=None if use is None else text_use_to_proto(use),
    )


def _score(document: ScoredDocument) -> pb.DocumentScore:
    if document.error is not None:
        return pb.DocumentScore(error=item_error_to_proto(document.error))
    match = document.match
    return pb.DocumentScore(
        match_logit=None if match is None else match.logit,
        match_probability=None if match is None else match.probability,
        similarity=document.similarity,
    )
