"""A SearchService that does what a test says, behind the real chassis, for clients to call."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from tandem.chassis.health.health import Health
from tandem.chassis.serve.direct_channel import DirectChannel
from tandem.chassis.serve.server import make_server
from tandem.contract.filtering.attribute_wire import attributes_from_proto
from tandem.contract.filtering.filter_expression import parse_filter
from tandem.contract.filtering.filters import holds
from tandem.contract.model_description import (
    MODEL_WIRE,
    AdaptiveDepthRule,
    ModelDescription,
    ProbabilityCalibration,
)
from tandem.contract.search.answer_wire import item_error_to_proto
from tandem.errors import ItemNotFound, TandemError, TextEmpty
from tandem.v1 import content_pb2, error_reason_pb2, index_service_pb2, model_service_pb2
from tandem.v1 import content_service_pb2 as content_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.content_service_pb2_grpc import (
    ContentServiceServicer,
    add_ContentServiceServicer_to_server,
)
from tandem.v1.model_service_pb2_grpc import (
    ModelServiceServicer,
    add_ModelServiceServicer_to_server,
)
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceServicer,
    add_SearchServiceServicer_to_server,
)

MODEL = ModelDescription(
    fingerprint="f1",
    family="joint",
    precision="bf16",
    embedding_dimension=256,
    max_text_token_count=64,
    max_text_bytes=8192,
    max_image_bytes=2**23,
    max_image_pixel_count=25_000_000,
    probability_calibration=ProbabilityCalibration(1.5, -0.25),
    adaptive_depth_rule=AdaptiveDepthRule(
        first_count=4,
        further_count=4,
        intercept=1.0,
        best_logit_weight=-0.5,
        margin_weight=-0.25,
        similarity_gap_weight=-2.0,
        log_rank_weight=-1.0,
        stop_chance=0.01,
    ),
)

TEXT_TO_IMAGE = index_service_pb2.DirectionRecall(
    query_modality=content_pb2.MODALITY_TEXT,
    target_modality=content_pb2.MODALITY_IMAGE,
    recall=0.75,
    search_count=40,
)

INDEXES = [
    index_service_pb2.IndexSummary(
        index_id=index_id, model_fingerprint=MODEL.fingerprint, text_count=3, image_count=1
    )
    for index_id in ("pets", "scenes")
]

INDEX = pb.DescribeIndexResponse(
    model_fingerprint=MODEL.fingerprint,
    embedding_dimension=MODEL.embedding_dimension,
    shards=[
        pb.ShardIndex(
            shard_number=1,
            parts=[
                index_service_pb2.IndexPart(
                    modality=content_pb2.MODALITY_TEXT,
                    item_count=12,
                    index_type="Flat",
                    device="cpu",
                ),
                index_service_pb2.IndexPart(
                    modality=content_pb2.MODALITY_IMAGE,
                    item_count=30_000,
                    dead_row_count=4,
                    tail_row_count=70,
                    index_type="IVF64,Flat",
                    parameters={"nprobe": 8.0},
                    device="cpu",
                    fallback=index_service_pb2.SEARCH_FALLBACK_NOT_BUILT,
                    fallback_reason="too few items",
                    activity="writing a snapshot",
                    index_bytes=2_500_000,
                    recall_target=0.98,
                    built_recall=0.99,
                    list_imbalance=1.5,
                    live_recalls=[TEXT_TO_IMAGE],
                ),
            ],
            keyword_state=index_service_pb2.KEYWORD_STATE_BEING_BUILT,
        )
    ],
    live_recalls=[TEXT_TO_IMAGE],
    coverage=pb.Coverage(
        answered_shard_count=1,
        shard_count=2,
        covered_item_count=30_012,
        missing_shards=[pb.MissingShard(shard_number=0, reason="ERROR_REASON_SERVICE_UNAVAILABLE")],
    ),
    degradations=["DEGRADATION_SHARDS_MISSING"],
)

Search = Callable[[pb.SearchItemsRequest], Awaitable[pb.SearchItemsResponse]]
IngestBatch = Callable[[pb.IngestItemsRequest], Awaitable[pb.IngestItemsResponse]]
Remove = Callable[[pb.RemoveItemsRequest], Awaitable[pb.RemoveItemsResponse]]


async def found_nothing(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """The search that always succeeds."""
    return pb.SearchItemsResponse()


async def all_stored(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    """The batch that always succeeds."""
    return pb.IngestItemsResponse(
        results=[pb.IngestResult(item_id=item.item_id) for item in request.items]
    )


async def all_removed(request: pb.RemoveItemsRequest) -> pb.RemoveItemsResponse:
    """The removal that finds every item."""
    return pb.RemoveItemsResponse(removed_count=len(request.item_ids))


def _page(
    held: Mapping[str, index_service_pb2.Item], asked: content_pb.ListItemsRequest
) -> content_pb.ListItemsResponse:
    text = asked.selection.filter_text
    wanted = parse_filter(text) if text else None
    found = [
        item
        for name, item in held.items()
        if name > asked.page_token
        and name.startswith(asked.selection.id_prefix)
        and (wanted is None or holds(wanted, attributes_from_proto(item.attributes)))
    ]
    page, has_more = found[: asked.page_size], len(found) > asked.page_size
    return content_pb.ListItemsResponse(
        item_ids=[each.item_id for each in page],
        items=[
            index_service_pb2.Item(item_id=each.item_id, attributes=each.attributes)
            for each in page
        ],
        next_page_token=page[-1].item_id if has_more else "",
    )


class ToldService(SearchServiceServicer, ContentServiceServicer, ModelServiceServicer):
    """Answers as the test sets it, and notes what it was sent."""

    def __init__(self, search: Search, ingest: IngestBatch, remove: Remove) -> None:
        self._search, self._ingest, self._remove = search, ingest, remove
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str | bytes]] = []
        self.stream_ended = asyncio.Event()
        """Set when an ingest stream is over, whichever way."""
        self.held: dict[str, index_service_pb2.Item] = {}
        """What the index holds, in byte order; empty: what each method says."""
        self.index_removal_error: TandemError | None = None
        self.direct_channel: DirectChannel | None = None
        """Calls it from this process, through the interceptors of its server."""

    async def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SearchItemsResponse:
        """Answers by `search`."""
        self._note(request, context)
        return await self._search(request)

    async def StreamSearchItems(
        self, request: pb.StreamSearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.StreamSearchItemsResponse]:
        """Answers twice by `search`."""
        self._note(request, context)
        try:
            for phase in (pb.SEARCH_PHASE_RETRIEVED, pb.SEARCH_PHASE_FINAL):
                answer = await self._search(request.search)
                yield pb.StreamSearchItemsResponse(phase=phase, answer=answer)
        finally:
            self.stream_ended.set()

    async def BatchSearchItems(
        self, request: pb.BatchSearchItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.BatchSearchItemsResponse:
        """Answers each by `search`, or by the error that it raises."""
        self._note(request, context)
        results = []
        for search in request.searches:
            try:
                results.append(pb.BatchSearchResult(response=await self._search(search)))
            except TandemError as error:
                results.append(pb.BatchSearchResult(error=item_error_to_proto(error)))
        return pb.BatchSearchItemsResponse(results=results)

    async def DescribeModel(
        self, request: model_service_pb2.DescribeModelRequest, context: grpc.aio.ServicerContext
    ) -> model_service_pb2.DescribeModelResponse:
        """Describes `MODEL`."""
        self._note(request, context)
        return model_service_pb2.DescribeModelResponse(model=MODEL_WIRE.to_proto(MODEL))

    async def IngestItems(
        self,
        request_iterator: AsyncIterator[pb.IngestItemsRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.IngestItemsResponse]:
        """Answers each batch by `ingest` before it reads the next."""
        try:
            async for request in request_iterator:
                self._note(request, context)
                yield await self._ingest(request)
        finally:
            self.stream_ended.set()

    async def ChangeItems(
        self, request: pb.ChangeItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.ChangeItemsResponse:
        self._note(request, context)
        return pb.ChangeItemsResponse(changed_count=len(request.patches))

    async def RemoveItems(
        self, request: pb.RemoveItemsRequest, context: grpc.aio.ServicerContext
    ) -> pb.RemoveItemsResponse:
        """Answers by `remove`."""
        self._note(request, context)
        return await self._remove(request)

    async def RemoveIndex(
        self, request: pb.RemoveIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.RemoveIndexResponse:
        """Has a part left at the first call for an index."""
        is_first = request not in self.requests
        self._note(request, context)
        if self.index_removal_error is not None:
            raise self.index_removal_error
        return pb.RemoveIndexResponse(removed_count=3, is_complete=not is_first)

    async def DescribeIndex(
        self, request: pb.DescribeIndexRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeIndexResponse:
        """Describes `INDEX`, whatever its id."""
        self._note(request, context)
        return INDEX

    async def SetCalibrations(
        self, request: pb.SetCalibrationsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SetCalibrationsResponse:
        """Counts what it was sent."""
        self._note(request, context)
        return pb.SetCalibrationsResponse(calibration_count=len(request.calibrations))

    async def ListIndexes(
        self, request: pb.ListIndexesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListIndexesResponse:
        """Has two pages of an index each, the second without a shard."""
        self._note(request, context)
        if not request.page_token:
            return pb.ListIndexesResponse(indexes=[INDEXES[0]], next_page_token="pets")
        return pb.ListIndexesResponse(
            indexes=[INDEXES[1]],
            missing_shards=[
                pb.MissingShard(
                    shard_number=1, reason=error_reason_pb2.ERROR_REASON_SERVICE_UNAVAILABLE
                )
            ],
        )

    async def FetchItems(
        self, request: content_pb.FetchItemsRequest, context: grpc.aio.ServicerContext
    ) -> content_pb.FetchItemsResponse:
        """Has every item but those whose id begins with "no"."""
        self._note(request, context)
        if self.held:
            return content_pb.FetchItemsResponse(items=[self.held[i] for i in request.item_ids])
        found = [each for each in request.item_ids if not each.startswith("no")]
        return content_pb.FetchItemsResponse(
            items=[
                index_service_pb2.Item(item_id=each, content=content_pb2.Content(text=each))
                for each in found
            ]
        )

    async def ListItems(
        self, request: content_pb.ListItemsRequest, context: grpc.aio.ServicerContext
    ) -> content_pb.ListItemsResponse:
        """Lists two pages, or what is held."""
        self._note(request, context)
        if self.held:
            return _page(self.held, request)
        if request.page_token:
            return content_pb.ListItemsResponse(item_ids=["c"])
        return content_pb.ListItemsResponse(item_ids=["a", "b"], next_page_token="b")

    async def EmbedContents(
        self, request: content_pb.EmbedContentsRequest, context: grpc.aio.ServicerContext
    ) -> content_pb.EmbedContentsResponse:
        """Embeds each by its place, and refuses the text "no"."""
        self._note(request, context)
        return content_pb.EmbedContentsResponse(
            results=[
                content_pb.EmbedResult(error=item_error_to_proto(TextEmpty()))
                if each.text == "no"
                else content_pb.EmbedResult(
                    embedding=content_pb2.Embedding(values=struct.pack("<2f", place, 0.5)),
                    text_use=content_pb2.TextUse(token_count=7, used_token_count=7),
                )
                for place, each in enumerate(request.contents)
            ],
            model_fingerprint=MODEL.fingerprint,
        )

    async def ScoreDocuments(
        self, request: content_pb.ScoreDocumentsRequest, context: grpc.aio.ServicerContext
    ) -> content_pb.ScoreDocumentsResponse:
        """Scores later documents higher, texts by similarity, and refuses "no".

        A text "cut" is longer than the model reads, "" has no words, and "unlike" has a similarity
        that was not calibrated.
        """
        self._note(request, context)
        scores = []
        for place, each in enumerate(request.documents):
            if each.content.HasField("text") and not each.content.text:
                error = item_error_to_proto(TextEmpty())
                scores.append(content_pb.DocumentScore(error=error))
            elif "no" in (each.item_id, each.content.text):
                error = item_error_to_proto(ItemNotFound(item_id="no"))
                scores.append(content_pb.DocumentScore(error=error))
            elif each.content.text:
                score = content_pb.DocumentScore(similarity=0.9, match_probability=0.005)
                if each.content.text == "unlike":
                    score = content_pb.DocumentScore(similarity=-0.2)
                if each.content.text == "cut":
                    score.text_use.CopyFrom(
                        content_pb2.TextUse(token_count=90, used_token_count=64, truncated=True)
                    )
                scores.append(score)
            else:
                score = content_pb.DocumentScore(match_logit=place, match_probability=place / 100)
                if each.item_id == "uncalibrated":
                    score.ClearField("match_probability")
                scores.append(score)
        return content_pb.ScoreDocumentsResponse(
            scores=scores,
            model_fingerprint=MODEL.fingerprint,
            reranker="cross-a",
            scales_differ={"text", "image"}
            <= {e.content.WhichOneof("data") for e in request.documents}
            and any(each.content.text == "unlike" for each in request.documents),
        )

    def _note(self, request: object, context: grpc.aio.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))


def _add(service: ToldService, server: grpc.aio.Server) -> None:
    add_SearchServiceServicer_to_server(service, server)
    add_ContentServiceServicer_to_server(service, server)
    add_ModelServiceServicer_to_server(service, server)


async def _warm() -> None:
    """It was never cold."""


@asynccontextmanager
async def search_server(
    search: Search = found_nothing,
    ingest: IngestBatch = all_stored,
    remove: Remove = all_removed,
) -> AsyncIterator[tuple[str, ToldService]]:
    """Serves on a free port of the loopback; yields the address and the service."""
    service = ToldService(search, ingest, remove)
    health = Health("told", ["tandem.v1.SearchService"])
    server = await make_server(
        "told",
        health,
        lambda server: _add(service, server),
        [],
    )
    service.direct_channel = server.direct_channel()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await health.watch(_warm, None)
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        await server.stop(None)
