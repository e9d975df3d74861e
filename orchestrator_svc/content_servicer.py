"""ContentService: converts messages, and calls the orchestrator's readers and scorers."""

from functools import partial

import grpc

from orchestrator_svc.call_deadline import CallDeadline
from tandem.chassis.process.side_thread import converted
from tandem.contract.content import Encoding
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.inference_cost import COST_WIRE
from tandem.contract.limits import MAX_CONTENT_COUNT, check_batch_size
from tandem.contract.record_wire import or_error
from tandem.contract.search.answer_wire import (
    TEXT_USE_WIRE,
    content_from_proto,
    item_error_to_proto,
)
from tandem.contract.search.documents import DOCUMENT_QUERY_WIRE, SCORED_WIRE
from tandem.contract.search.item_changes_wire import KEPT_WIRE, LISTING_WIRE
from tandem.contract.search.query_wire import TRUNCATION_POLICY_WIRE
from tandem.errors import TandemError
from tandem.search.contents.content_budget import ContentBudget
from tandem.search.orchestrator import Orchestrator
from tandem.v1 import content_service_pb2 as pb
from tandem.v1 import content_service_pb2_grpc
from tandem.wire import embedding_to_proto
from tandem.wire.items import FETCH_WIRE, FETCHED_WIRE


class ContentServicer(content_service_pb2_grpc.ContentServiceServicer):
    """Serves stored items, and the models on contents that are not stored."""

    def __init__(
        self, orchestrator: Orchestrator, deadline: CallDeadline, content_budget: ContentBudget
    ) -> None:
        self.orchestrator = orchestrator
        self._deadline = deadline
        self._content_budget = content_budget

    async def FetchItems(
        self, request: pb.FetchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.FetchItemsResponse:
        """Returns the items that exist, in the order of the ids."""
        self._content_budget.hold_for(context)
        asked = FETCH_WIRE.from_proto(request)
        found = await self.orchestrator.fetch_items(asked, self._deadline.of_search(context))
        response = pb.FetchItemsResponse()
        for item_id in dict.fromkeys(request.item_ids):
            if (item := found.get(item_id)) is None:
                continue
            response.items.add(**FETCHED_WIRE.values(item, item_id=item_id))
            if (stored := item.embedding) is not None:
                response.embeddings.add(
                    embedding=embedding_to_proto(stored.embedding),
                    modality=MODALITY_WIRE.to_proto(stored.modality),
                )
                response.model_fingerprint = stored.fingerprint
        return response

    async def ListItems(
        self, request: pb.ListItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListItemsResponse:
        """Returns one page of items without contents."""
        asked = await converted(partial(LISTING_WIRE.from_proto, request))
        items, last = await self.orchestrator.list_items(asked, self._deadline.of_search(context))
        return pb.ListItemsResponse(
            item_ids=(each.item_id for each in items),
            next_page_token=last,
            items=map(KEPT_WIRE.to_proto, items) if asked.attributes_included else (),
        )

    async def EmbedContents(
        self, request: pb.EmbedContentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.EmbedContentsResponse:
        """Returns each content's embedding or error."""
        check_batch_size("contents", len(request.contents), MAX_CONTENT_COUNT)
        contents = await converted(
            lambda: [or_error(content_from_proto, each) for each in request.contents]
        )
        made = await self.orchestrator.embed(
            contents,
            TRUNCATION_POLICY_WIRE.from_proto(request.truncation_policy),
            self._deadline.of_search(context),
        )
        return pb.EmbedContentsResponse(
            results=map(_embedded, made.outcomes),
            model_fingerprint=made.fingerprint,
            model_version=made.model_version,
            cost=COST_WIRE.to_proto(made.cost),
        )

    async def ScoreDocuments(
        self, request: pb.ScoreDocumentsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreDocumentsResponse:
        """Returns each document's score or error."""
        query = await converted(partial(DOCUMENT_QUERY_WIRE.from_proto, request))
        return SCORED_WIRE.to_proto(
            await self.orchestrator.score_documents(query, self._deadline.of_search(context))
        )


def _embedded(outcome: Encoding | TandemError) -> pb.EmbedResult:
    if isinstance(outcome, TandemError):
        return pb.EmbedResult(error=item_error_to_proto(outcome))
    use = outcome.text_use
    return pb.EmbedResult(
        embedding=embedding_to_proto(outcome.embedding),
        text_use=None if use is None else TEXT_USE_WIRE.to_proto(use),
    )
