"""Fakes of the downstream services, in memory and on real sockets, that tests can make fail.

Texts embed as the angle that their first number names, in degrees; pictures likewise, as bytes. So
a test reads off which item is nearest: "10" is nearer to "12" than to "40".
"""

from __future__ import annotations

import math
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.call_deadline import CallDeadline
from orchestrator_svc.content_servicer import ContentServicer
from orchestrator_svc.model_servicer import SearchModelServicer
from orchestrator_svc.servicer import SearchServicer
from tandem.chassis.access.guard import Guard
from tandem.chassis.calls.channels import open_channel
from tandem.chassis.capacity.admission import DEFAULT_LIMITS
from tandem.chassis.health.health import Health
from tandem.chassis.process.side_thread import converted
from tandem.chassis.serve.server import make_server
from tandem.contract.content import Encoding, ImageTokens, TextTokens, TextUse, TruncationPolicy
from tandem.contract.filtering.attribute_wire import attributes_from_proto, filter_from_proto
from tandem.contract.filtering.filters import AllOf, Filter, holds
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.answer_wire import item_error_to_proto
from tandem.contract.search.ingest import IncomingItem, IngestBatch
from tandem.errors import (
    IndexNotFound,
    ItemIdDuplicate,
    RequestIdReused,
    SequenceNotReached,
    TandemError,
)
from tandem.remote.encoder import RemoteEncoder
from tandem.remote.reranker import RemoteReranker
from tandem.remote.shard import RemoteShard
from tandem.search.assembly import Stages, guarded_stages
from tandem.search.batch_search import BatchSearcher
from tandem.search.contents.content_budget import ContentBudget
from tandem.search.contents.documents import DocumentScorer
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.alias_book import AliasBook
from tandem.search.indexes.calibrations import Calibrations
from tandem.search.indexes.generations import Generations
from tandem.search.indexes.index_list import IndexList
from tandem.search.indexes.index_survey import IndexSurvey
from tandem.search.indexes.keeper import Keeper
from tandem.search.indexes.router import ModelSet, Router
from tandem.search.indexes.shadow import Shadow
from tandem.search.neighbours.neighbour_stage import NeighbourStage
from tandem.search.orchestrator import Orchestrator
from tandem.search.rerank.adaptive_depth import DepthRules
from tandem.search.rerank.pace import RerankPace
from tandem.search.search import Searcher, SearchServices
from tandem.search.settings import SearchSettings
from tandem.search.shard_map import ShardMap
from tandem.search.writes.changes import Changer
from tandem.search.writes.ingest import Ingested, Ingester
from tandem.search.writes.ingest_stream import IngestStream
from tandem.search.writes.removal import Remover
from tandem.search.writes.selected import SelectedItems
from tandem.search.writes.shard_writes import ShardWrites
from tandem.v1 import content_pb2, cost_pb2
from tandem.v1 import encoder_service_pb2 as encoder_pb
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1.content_service_pb2_grpc import (
    ContentServiceStub,
    add_ContentServiceServicer_to_server,
)
from tandem.v1.encoder_service_pb2_grpc import (
    EncoderServiceServicer,
    add_EncoderServiceServicer_to_server,
)
from tandem.v1.index_service_pb2_grpc import (
    IndexServiceServicer,
    add_IndexServiceServicer_to_server,
)
from tandem.v1.model_service_pb2_grpc import (
    ModelServiceStub,
    add_ModelServiceServicer_to_server,
)
from tandem.v1.rerank_service_pb2_grpc import add_RerankServiceServicer_to_server
from tandem.v1.search_service_pb2_grpc import (
    SearchServiceStub,
    add_SearchServiceServicer_to_server,
)
from tandem.wire import ENCODING_WIRE, embedding_from_proto
from tests.support.chassis.served import served
from tests.support.orchestrator_svc.scripted import Before, Describing, FakeReranker

# Fewer places than the fakes have, as an orchestrator has fewer than its services.
ORCHESTRATOR_LIMITS = replace(DEFAULT_LIMITS, max_inflight_count=32)

FINGERPRINT = "model-a"
DESCRIPTION = ModelDescription(
    fingerprint=FINGERPRINT,
    family="joint",
    precision="fp32",
    embedding_dimension=2,
    max_text_token_count=64,
    max_text_bytes=8192,
    max_image_bytes=1,
    max_image_pixel_count=1,
)

Write = index_pb.UpsertItemsRequest | index_pb.DeleteItemsRequest
WriteResponse = TypeVar("WriteResponse", index_pb.UpsertItemsResponse, index_pb.DeleteItemsResponse)


class FakeEncoder(Describing, EncoderServiceServicer):
    """Encodes contents, and refuses those in `refused`."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, TandemError] = {}
        self.text_uses: dict[str, TextUse] = {}
        """By text; of others nothing is said."""
        self.is_model_unavailable = False
        self.model_version = 0
        self.has_cross_encoder = True
        """Or else it gives empty tokens."""
        self.stores_image_tokens = True
        """Or else ingest gives images empty ones, and queries have some."""

    async def EncodeContents(
        self, request: encoder_pb.EncodeContentsRequest, context: grpc.aio.ServicerContext
    ) -> encoder_pb.EncodeContentsResponse:
        """Encodes each content by the angle that it names."""
        await self.asked("EncodeContents", request)
        return encoder_pb.EncodeContentsResponse(
            results=[self._result(content, request) for content in request.contents],
            model_fingerprint=FINGERPRINT,
            cost=cost_pb2.InferenceCost(cache_miss_count=len(request.contents)),
            model_unavailable=self.is_model_unavailable,
            model_version=self.model_version,
        )

    def _result(
        self, content: content_pb2.Content, request: encoder_pb.EncodeContentsRequest
    ) -> encoder_pb.EncodeResult:
        told = content.text or content.image.decode()
        if told in self.refused:
            return encoder_pb.EncodeResult(error=item_error_to_proto(self.refused[told]))
        if not self.has_cross_encoder:
            return _encoded(Encoding(_at(told), TextTokens(np.zeros(0, dtype=np.int32))))
        if content.WhichOneof("data") == "image":
            is_query = request.purpose == encoder_pb.ENCODE_PURPOSE_QUERY
            count = 2 if self.stores_image_tokens or is_query else 0
            tokens = ImageTokens(np.ones((count, count), dtype=np.float16))
            return _encoded(Encoding(_at(told), tokens))
        if request.truncation_policy != content_pb2.TRUNCATION_POLICY_BEST_WINDOW:
            return _encoded(Encoding(_at(told), text_tokens(0), self.text_uses.get(told)))
        windows = [
            Encoding(_at(each), text_tokens(number)) for number, each in enumerate(told.split("|"))
        ]
        use = TextUse(len(windows), len(windows))
        return _encoded(Encoding(windows[0].embedding, windows[0].tokens, use, tuple(windows[1:])))


def _words_of(item: index_pb.EncodedItem) -> Sequence[str]:
    # Reading an attribute that is not there would add it.
    caption = item.attributes["caption"].text if "caption" in item.attributes else ""
    return f"{item.content.text} {caption}".split()


def text_tokens(window_number: int) -> TextTokens:
    """Returns the tokens of a text, or of its further windows, which a `|` starts."""
    return TextTokens(np.array([2, 7 + window_number, 3], dtype=np.int32))


def _at(told: str) -> NDArray[np.float32]:
    """Returns the angle that is named; of other words, one of their own."""
    start = told.split()[0].split("|")[0]
    try:
        degrees = float(start)
    except ValueError:
        degrees = zlib.crc32(told.encode()) % 90
    angle = math.radians(degrees)
    return np.array([math.cos(angle), math.sin(angle)], dtype=np.float32)


def _encoded(encoding: Encoding) -> encoder_pb.EncodeResult:
    return encoder_pb.EncodeResult(encoding=ENCODING_WIRE.to_proto(encoding))


class FakeShard(FakeReranker, IndexServiceServicer):
    """Stores items and scores them; both services of one shard."""

    def __init__(self) -> None:
        super().__init__()
        self.items: dict[str, dict[str, index_pb.EncodedItem]] = {}
        self.path = index_pb.SearchPath()
        """How a search says that it found its hits."""
        self.keyword_state: index_pb.KeywordState = index_pb.KEYWORD_STATE_SEARCHED
        """Whether it searches by words."""
        self.recalls: Sequence[index_pb.DirectionRecall] = ()
        """What recent searches found of the nearest."""
        self.max_get_count: int | None = None
        """What it gives at once; as an earlier version it gives all, and says nothing of it."""
        self.sequence = 0
        """Counts writes, over all indexes."""
        self.notes: dict[str, index_pb.Note] = {}
        self.answers: dict[str, tuple[object, object]] = {}
        """Of writes with a request id, by it: given again instead of writing again."""

    async def UpsertItems(
        self, request: index_pb.UpsertItemsRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.UpsertItemsResponse:
        """Stores all items, as a later search will see."""
        await self.asked("UpsertItems", request)
        ids = [item.item_id for item in request.items]
        if len(set(ids)) < len(ids):
            raise ItemIdDuplicate(item_id=ids[0])
        if request.request_id in self.answers:
            return self._first_answer(request, index_pb.UpsertItemsResponse)
        self.items.setdefault(request.index_id, {}).update(zip(ids, request.items, strict=True))
        self.sequence += 1
        return self._kept(request, index_pb.UpsertItemsResponse(sequence=self.sequence))

    async def SearchEmbeddings(
        self, request: index_pb.SearchEmbeddingsRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.SearchEmbeddingsResponse:
        """Compares with every item of the modality."""
        await self.asked("SearchEmbeddings", request)
        if request.minimum_sequence > self.sequence:
            raise SequenceNotReached(minimum=request.minimum_sequence, applied=self.sequence)
        tree: Filter = AllOf(())
        if request.HasField("filter"):
            tree = await converted(lambda: filter_from_proto(request.filter))
        kind = "text" if request.modality == content_pb2.MODALITY_TEXT else "image"
        items = {
            item_id: item
            for item_id, item in self._index(request.index_id).items()
            if item.content.WhichOneof("data") == kind
            and holds(tree, attributes_from_proto(item.attributes))
        }
        hit_lists = []
        for query in map(embedding_from_proto, request.queries):
            hits = [
                index_pb.Hit(
                    item_id=item_id,
                    similarity=float(query @ embedding_from_proto(item.embedding)),
                    embedding=item.embedding if request.embeddings_included else None,
                )
                for item_id, item in items.items()
            ]
            hits.sort(key=lambda hit: (-hit.similarity, hit.item_id))
            hit_lists.append(index_pb.HitList(hits=hits[: request.retrieve_k]))
        return index_pb.SearchEmbeddingsResponse(
            hit_lists=hit_lists,
            applied_sequence=self.sequence,
            item_count=len(items),
            path=self.path,
            keyword_hit_list=self._words(request, items) if request.keywords else None,
        )

    def _words(
        self,
        request: index_pb.SearchEmbeddingsRequest,
        items: Mapping[str, index_pb.EncodedItem],
    ) -> index_pb.KeywordHitList:
        """Scores an item by how many of the words its caption or text has."""
        hits = [
            index_pb.KeywordHit(
                item_id=item_id,
                score=len(set(request.keywords.split()) & set(_words_of(item))),
                similarities=[
                    float(embedding_from_proto(query) @ embedding_from_proto(item.embedding))
                    for query in request.queries
                ],
                embedding=item.embedding if request.embeddings_included else None,
            )
            for item_id, item in items.items()
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.item_id))
        is_searched = self.keyword_state == index_pb.KEYWORD_STATE_SEARCHED
        return index_pb.KeywordHitList(
            state=self.keyword_state,
            hits=[hit for hit in hits if hit.score][: request.retrieve_k] if is_searched else [],
        )

    async def FindNeighbours(
        self, request: index_pb.FindNeighboursRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.FindNeighboursResponse:
        """Compares with every item, as if the pool had all."""
        await self.asked("FindNeighbours", request)
        nodes = np.stack(
            [embedding_from_proto(each) for each in (request.query, *request.candidates)]
        )
        return index_pb.FindNeighboursResponse(
            texts=self._neighbourhood(request, "text", nodes),
            images=self._neighbourhood(request, "image", nodes),
        )

    def _neighbourhood(
        self, request: index_pb.FindNeighboursRequest, kind: str, nodes: NDArray[np.float32]
    ) -> index_pb.Neighbourhood:
        items = [
            item.embedding
            for item in self._index(request.index_id).values()
            if item.content.WhichOneof("data") == kind
        ]
        if not items:
            return index_pb.Neighbourhood(lists=[index_pb.NeighbourList()] * len(nodes))
        similarities = nodes @ np.stack([embedding_from_proto(each) for each in items]).T
        orders = np.argsort(-similarities, axis=1, kind="stable")
        return index_pb.Neighbourhood(
            pillars=[items[place] for place in orders[0, : request.pillar_k]],
            lists=[
                index_pb.NeighbourList(numbers=order, similarities=row[order])
                for row, order in zip(similarities, orders[:, : request.neighbour_k], strict=True)
            ],
        )

    async def DeleteItems(
        self, request: index_pb.DeleteItemsRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.DeleteItemsResponse:
        """Deletes what is there."""
        await self.asked("DeleteItems", request)
        if request.request_id in self.answers:
            return self._first_answer(request, index_pb.DeleteItemsResponse)
        index = self._index(request.index_id)
        count = sum(index.pop(item_id, None) is not None for item_id in request.item_ids)
        self.sequence += 1
        return self._kept(
            request, index_pb.DeleteItemsResponse(deleted_count=count, sequence=self.sequence)
        )

    async def DeleteIndex(
        self, request: index_pb.DeleteIndexRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.DeleteIndexResponse:
        """Deletes three items at a time."""
        await self.asked("DeleteIndex", request)
        index = self._index(request.index_id)
        item_ids = list(index)[:3]
        for item_id in item_ids:
            del index[item_id]
        self.sequence += 1
        if not index:
            del self.items[request.index_id]
        return index_pb.DeleteIndexResponse(
            deleted_count=len(item_ids), sequence=self.sequence, is_complete=not index
        )

    async def GetItems(
        self, request: index_pb.GetItemsRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.GetItemsResponse:
        """Returns what is there, or as many of the first as it gives at once."""
        await self.asked("GetItems", request)
        index = self._index(request.index_id)
        if self.max_get_count is not None:
            del request.item_ids[self.max_get_count :]
            response = self._got(request, index)
            response.read_count = len(request.item_ids)
            return response
        return self._got(request, index)

    async def ListItemIds(
        self, request: index_pb.ListItemIdsRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.ListItemIdsResponse:
        """Lists the ids in byte order."""
        await self.asked("ListItemIds", request)
        item_ids = sorted(self._index(request.index_id), key=str.encode)
        later = [each for each in item_ids if each.encode() > request.after.encode()]
        return index_pb.ListItemIdsResponse(item_ids=later[: request.max_count])

    async def ListShardIndexes(
        self, request: index_pb.ListShardIndexesRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.ListShardIndexesResponse:
        """Counts the items of its indexes."""
        await self.asked("ListShardIndexes", request)
        kinds = {
            index_id: [item.content.WhichOneof("data") for item in items.values()]
            for index_id, items in sorted(self.items.items())
            if index_id > request.after and index_id in (request.index_ids or self.items)
        }
        summaries = [
            index_pb.IndexSummary(
                index_id=index_id,
                model_fingerprint=FINGERPRINT,
                text_count=found.count("text"),
                image_count=found.count("image"),
            )
            for index_id, found in kinds.items()
        ]
        return index_pb.ListShardIndexesResponse(indexes=summaries[: request.max_count])

    async def ReadNotes(
        self, request: index_pb.ReadNotesRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.ReadNotesResponse:
        """Returns the notes; a search asks for them too, which `asked` does not count."""
        if "ReadNotes" in self.before:
            await self.before["ReadNotes"](request)
        found = [note for key, note in self.notes.items() if key.startswith(request.prefix)]
        return index_pb.ReadNotesResponse(notes=found)

    async def PutNote(
        self, request: index_pb.PutNoteRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.PutNoteResponse:
        """Keeps a note, whoever wrote it before."""
        self.notes[request.key] = index_pb.Note(
            key=request.key, value=request.value, revision=request.replaced_revision + 1
        )
        return index_pb.PutNoteResponse(sequence=self.sequence)

    async def DescribeShardIndex(
        self, request: index_pb.DescribeShardIndexRequest, context: grpc.aio.ServicerContext
    ) -> index_pb.DescribeShardIndexResponse:
        """Counts its items, and has `recalls` and `path`'s fallback."""
        await self.asked("DescribeShardIndex", request)
        kinds = [item.content.WhichOneof("data") for item in self._index(request.index_id).values()]
        parts = [
            index_pb.IndexPart(
                modality=modality,
                item_count=kinds.count(kind),
                index_type="Flat",
                device="cpu",
                fallback=self.path.fallback,
                live_recalls=[each for each in self.recalls if each.target_modality == modality],
            )
            for kind, modality in (
                ("text", content_pb2.MODALITY_TEXT),
                ("image", content_pb2.MODALITY_IMAGE),
            )
        ]
        return index_pb.DescribeShardIndexResponse(
            model_fingerprint=FINGERPRINT,
            embedding_dimension=2,
            parts=parts,
            keyword_state=self.keyword_state,
        )

    def _got(
        self, request: index_pb.GetItemsRequest, index: dict[str, index_pb.EncodedItem]
    ) -> index_pb.GetItemsResponse:
        if request.encodings_included:
            response = index_pb.GetItemsResponse(
                encoded_items=[index[each] for each in request.item_ids if each in index],
                model_fingerprint=FINGERPRINT,
            )
            for item in response.encoded_items if request.content_excluded else ():
                item.ClearField("content")
            return response
        return index_pb.GetItemsResponse(
            items=[
                index_pb.Item(
                    item_id=item_id,
                    content=None if request.content_excluded else index[item_id].content,
                    attributes=index[item_id].attributes,
                )
                for item_id in request.item_ids
                if item_id in index
            ]
        )

    def _kept(self, request: Write, response: WriteResponse) -> WriteResponse:
        if request.request_id:
            self.answers[request.request_id] = (_digest(request), response)
        return response

    def _first_answer(self, request: Write, kind: type[WriteResponse]) -> WriteResponse:
        digest, response = self.answers[request.request_id]
        if digest != _digest(request):
            raise RequestIdReused(request_id=request.request_id)
        assert isinstance(response, kind)
        return response

    def _index(self, index_id: str) -> dict[str, index_pb.EncodedItem]:
        if index_id not in self.items:
            raise IndexNotFound(index_id=index_id)
        return self.items[index_id]


@dataclass
class Stack:
    """An orchestrator's parts over fake services."""

    encoder: FakeEncoder
    shards: Sequence[FakeShard]
    stages: Stages
    shard_map: ShardMap
    router: Router
    ingester: Ingester
    remover: Remover
    changer: Changer
    shard_servers: Sequence[grpc.aio.Server]

    @property
    def searcher(self) -> Searcher:
        return self.router.sets[0].searcher

    async def stop_shard(self, number: int) -> None:
        """Ends the shard's server for good: from here on its port refuses connections."""
        await self.shard_servers[number].stop(None)

    def id_on(self, shard: int, start: str = "item", index_id: str = "scenes") -> str:
        """Returns an item id that lives on the shard."""
        ids = (f"{start}-{number}" for number in range(1_000))
        return next(each for each in ids if self.shard_map.owner(index_id, each) == shard)


@asynccontextmanager
async def stack(
    shard_count: int = 2,
    batch_timeout_seconds: float = 10.0,
    *,
    encode_batch_count: int = 4,
    trial_seconds: float = 1.0,
    reranker: Callable[[grpc.aio.Server], None] | None = None,
    **set_to: Any,
) -> AsyncIterator[Stack]:
    """Serves an encoder and shards, and yields an orchestrator's parts that call them.

    `set_to` are fields of SearchSettings. `reranker` adds a real RerankService to a server, in
    place of those of the fake shards.
    """
    encoder, shards = FakeEncoder(), [FakeShard() for _ in range(shard_count)]
    async with AsyncExitStack() as opened:
        encoder_channel = await opened.enter_async_context(
            served(lambda server: _add_encoder(encoder, server))
        )
        index_channels, rerank_channels, servers = [], [], []
        for shard in shards:
            server, channel = await opened.enter_async_context(_serving(_adding(shard)))
            rerank_channel = channel
            if reranker is not None:
                rerank_channel = await opened.enter_async_context(served(reranker))
            index_channels.append(channel)
            rerank_channels.append(rerank_channel)
            servers.append(server)
        settings = SearchSettings(**set_to)
        shard_map_version = settings.shard_map_version
        stages = guarded_stages(
            settings,
            RemoteEncoder(encoder_channel),
            [RemoteShard(each, n, shard_map_version) for n, each in enumerate(index_channels)],
            [RemoteReranker(each, n) for n, each in enumerate(rerank_channels)],
        )
        shard_map = ShardMap(shard_count, shard_map_version)
        services = SearchServices(
            encoder=stages.encoder,
            shards=stages.shards,
            readers=stages.shards,
            scorers=stages.rerankers,
            shard_map=shard_map,
            settings=settings,
            pace=RerankPace(settings, trial_seconds=trial_seconds),
            calibrations=Calibrations(stages.shards[0]),
            stages=[NeighbourStage(stages.shards, stages.rerankers)],
        )
        router = router_over(services, stages)
        opened.push_async_callback(router.book.close)
        writes = ShardWrites(router, stages.shards, shard_map)
        selected = SelectedItems(router, StoredItems(stages.shards, shard_map), shard_map)
        yield Stack(
            encoder,
            shards,
            stages,
            shard_map,
            router,
            Ingester(router, stages.shards, shard_map, batch_timeout_seconds, encode_batch_count),
            Remover(writes, selected),
            Changer(writes, selected),
            servers,
        )


def router_over(services: SearchServices, stages: Stages) -> Router:
    """Returns the router to one set of models."""
    searcher = Searcher(services, DepthRules(stages.rerankers))
    models = ModelSet(
        encoder=stages.encoder,
        searcher=searcher,
        batch_searcher=BatchSearcher(services, searcher.depth_rules),
        documents=DocumentScorer(stages.encoder, stages.rerankers, services.shard_map),
    )
    return Router(AliasBook(stages.shards), [models])


async def ingest(
    ingester: Ingester,
    items: Sequence[IncomingItem],
    *,
    index_id: str = "scenes",
    request_id: str = "",
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
) -> Ingested:
    """Encodes and stores one batch."""
    batch = IngestBatch(index_id, items, request_id, truncation_policy)
    return await ingester.store(await ingester.encode(batch))


@asynccontextmanager
async def door(
    behind: Stack, *, timeout_seconds: float = 10.0, pending_batch_count: int = 4
) -> AsyncIterator[SearchServiceStub]:
    """Serves the orchestrator's own service over the stack and yields a stub of it."""
    add = _door(behind, timeout_seconds, pending_batch_count)
    async with served(add) as channel:
        stub = SearchServiceStub(channel)
        stub.DescribeModel = ModelServiceStub(channel).DescribeModel  # type: ignore[attr-defined]
        yield stub


@asynccontextmanager
async def content_door(behind: Stack) -> AsyncIterator[ContentServiceStub]:
    """Serves the same, and yields a stub of ContentService."""
    async with served(_door(behind, 10.0, 4)) as channel:
        yield ContentServiceStub(channel)


async def _warm() -> None:
    """Returns at once: a fake has nothing to warm up."""


@asynccontextmanager
async def door_address(behind: Stack, guard: Guard | None = None) -> AsyncIterator[str]:
    """Serves as `door` does, and yields host:port for clients of their own."""
    health = Health("fake", [])
    door = _door(behind, 10.0, 4)
    server = await make_server("fake", health, door, [], ORCHESTRATOR_LIMITS, guard=guard)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await health.watch(_warm, None)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def _door(
    behind: Stack, timeout_seconds: float, pending_batch_count: int
) -> Callable[[grpc.aio.Server], None]:
    shards, encoders = behind.stages.shards, [behind.stages.encoder]
    generations = Generations(behind.router.book, encoders, shards)
    orchestrator = Orchestrator(
        router=behind.router,
        ingest_stream=IngestStream(
            behind.ingester, behind.shard_map, pending_batch_count=pending_batch_count
        ),
        remover=behind.remover,
        changer=behind.changer,
        survey=IndexSurvey(shards),
        index_list=IndexList(shards, behind.router.book),
        stored_items=StoredItems(shards, behind.shard_map),
        generations=generations,
        shadow=Shadow(behind.router, generations),
        keeper=Keeper(behind.router.book, encoders, shards, 1.0, 1),
    )
    deadline, budget = CallDeadline(timeout_seconds, 60.0), ContentBudget()
    servicer = SearchServicer(orchestrator, deadline, budget)
    models = SearchModelServicer(orchestrator, deadline)
    contents = ContentServicer(orchestrator, deadline, budget)

    def add(server: grpc.aio.Server) -> None:
        add_SearchServiceServicer_to_server(servicer, server)
        add_ContentServiceServicer_to_server(contents, server)
        add_ModelServiceServicer_to_server(models, server)

    return add


def raising(error: Exception) -> Before:
    """Returns what makes a method fail."""

    async def before(request: object) -> None:
        raise error

    return before


def _digest(request: Write) -> object:
    """Returns what two attempts at one write have in common: not the embedding or the tokens, which
    a model need not make alike twice.
    """
    if isinstance(request, index_pb.DeleteItemsRequest):
        return (request.index_id, tuple(request.item_ids))
    return (
        request.index_id,
        [
            (item.item_id, item.content.SerializeToString(deterministic=True))
            for item in request.items
        ],
    )


def adding_models(encoder: FakeEncoder, reranker: FakeShard) -> Callable[[grpc.aio.Server], None]:
    """Returns what serves both models behind one address."""

    def add(server: grpc.aio.Server) -> None:
        add_EncoderServiceServicer_to_server(encoder, server)
        add_RerankServiceServicer_to_server(reranker, server)
        add_ModelServiceServicer_to_server(encoder, server)

    return add


def _adding(shard: FakeShard) -> Callable[[grpc.aio.Server], None]:
    def add(server: grpc.aio.Server) -> None:
        add_IndexServiceServicer_to_server(shard, server)
        add_RerankServiceServicer_to_server(shard, server)
        add_ModelServiceServicer_to_server(shard, server)

    return add


def _add_encoder(encoder: FakeEncoder, server: grpc.aio.Server) -> None:
    add_EncoderServiceServicer_to_server(encoder, server)
    add_ModelServiceServicer_to_server(encoder, server)


@asynccontextmanager
async def _serving(
    register: Callable[[grpc.aio.Server], None],
) -> AsyncIterator[tuple[grpc.aio.Server, grpc.aio.Channel]]:
    server = await make_server("fake", Health("fake", []), register, [])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield server, channel
    finally:
        await server.stop(None)
