"""Serves the fake on a port of the loopback, as Tandem's public services."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from functools import partial
from types import TracebackType

import grpc
from google.protobuf.message import Message
from typing_extensions import Self

from tandem.client.testing.fake_calls import FakeCalls, error_message
from tandem.client.testing.fake_contents import FakeContents
from tandem.client.testing.fake_health import FakeHealth
from tandem.client.testing.fake_index import IMAGE, TEXT, FakeIndex
from tandem.client.testing.fake_words import MODEL
from tandem.contract.limits import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    MAX_RETRIEVE_K,
    MAX_SEARCH_COUNT,
)
from tandem.contract.model_description import model_to_proto
from tandem.errors import (
    BatchSizeOutOfRange,
    ConsistencyTokenInvalid,
    CursorInvalid,
    KOutOfRange,
    NeighbourModelMissing,
    RankingInvalid,
    TandemError,
)
from tandem.v1 import (
    content_service_pb2_grpc,
    index_service_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
)
from tandem.v1 import search_service_pb2 as pb
from tandem.v1 import search_service_pb2_grpc as services

_TOKEN = "fake-"
_CURSOR = b"fake-cursor-"
_DEFAULT_RETURN_N = 10


class FakeServer:
    """A fake of Tandem for callers' tests. Use it in a with statement, or close it.

    An item is found by the words that it shares with the query: those of its text, or of an image
    those of its id, its attributes and its bytes if they are UTF-8. It acts on target_modality,
    all_modalities_included, the counts, rerank_disabled, min_probability, filters, cursors,
    content_included, consistency tokens and hybrid, whose words count those that a text or the
    attribute caption has, always fused by reciprocal rank. It ignores fusion, diversity,
    adaptive_depth, explained and truncation. ContentService embeds words by their hashes.
    """

    def __init__(self) -> None:
        """Serves at once; `address` is for a client."""
        self._calls = FakeCalls()
        index = FakeIndex()
        servicer = _FakeServicer(index, self._calls)
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        services.add_SearchServiceServicer_to_server(servicer, self._server)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, self._server)
        content_service_pb2_grpc.add_ContentServiceServicer_to_server(
            FakeContents(index, self._calls), self._server
        )
        self._server.add_generic_rpc_handlers((FakeHealth(),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"127.0.0.1:{port}"

    def fail(self, error: TandemError, times: int = 1) -> None:
        """Makes the next calls fail, whatever their method, to test how a caller handles it.

        A client repeats calls that failed as unavailable; see `RetryPolicy`. With times=0 no call
        fails any more.
        """
        if times == 0:
            self._calls.failures.clear()
        self._calls.failures.extend([error] * times)

    def close(self) -> None:
        """Stops serving; calls in flight are cancelled."""
        self._server.stop(None).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _FakeServicer(services.SearchServiceServicer, model_service_pb2_grpc.ModelServiceServicer):
    """Answers from a FakeIndex."""

    def __init__(self, index: FakeIndex, calls: FakeCalls) -> None:
        self._index = index
        self._calls = calls
        self._write_count = 0
        self._cursors: dict[bytes, tuple[pb.SearchItemsResponse, str, int]] = {}

    def SearchItems(
        self, request: pb.SearchItemsRequest, context: grpc.ServicerContext
    ) -> pb.SearchItemsResponse:
        return self._calls.answered(context, lambda: self._search(request))

    def StreamSearchItems(
        self, request: pb.StreamSearchItemsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamSearchItemsResponse]:
        first = pb.SearchItemsRequest()
        first.CopyFrom(request.search)
        first.rerank_disabled = True
        answer = self._calls.answered(context, lambda: self._search(first))
        answer.ClearField("next_cursor")
        yield pb.StreamSearchItemsResponse(phase=pb.SEARCH_PHASE_RETRIEVED, answer=answer)
        answer = self._calls.answered(context, lambda: self._search(request.search))
        yield pb.StreamSearchItemsResponse(phase=pb.SEARCH_PHASE_FINAL, answer=answer)

    def BatchSearchItems(
        self, request: pb.BatchSearchItemsRequest, context: grpc.ServicerContext
    ) -> pb.BatchSearchItemsResponse:
        return self._calls.answered(context, lambda: self._batch(request))

    def IngestItems(
        self, request_iterator: Iterator[pb.IngestItemsRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.IngestItemsResponse]:
        for request in request_iterator:
            yield self._calls.answered(context, partial(self._ingest, request))

    def RemoveItems(
        self, request: pb.RemoveItemsRequest, context: grpc.ServicerContext
    ) -> pb.RemoveItemsResponse:
        return self._calls.answered(
            context,
            lambda: pb.RemoveItemsResponse(
                removed_count=self._index.remove(request.index_id, request.item_ids),
                consistency_token=self._new_token(),
            ),
        )

    def RemoveIndex(
        self, request: pb.RemoveIndexRequest, context: grpc.ServicerContext
    ) -> pb.RemoveIndexResponse:
        return self._calls.answered(
            context,
            lambda: pb.RemoveIndexResponse(
                removed_count=self._index.remove_index(request.index_id),
                consistency_token=self._new_token(),
                is_complete=True,
            ),
        )

    def DescribeIndex(
        self, request: pb.DescribeIndexRequest, context: grpc.ServicerContext
    ) -> pb.DescribeIndexResponse:
        return self._calls.answered(context, lambda: self._described(request.index_id))

    def ListIndexes(
        self, request: pb.ListIndexesRequest, context: grpc.ServicerContext
    ) -> pb.ListIndexesResponse:
        return self._calls.answered(context, lambda: self._listed(request))

    def DescribeModel(
        self, request: Message, context: grpc.ServicerContext
    ) -> model_service_pb2.DescribeModelResponse:
        return self._calls.answered(
            context, lambda: model_service_pb2.DescribeModelResponse(model=model_to_proto(MODEL))
        )

    def _search(self, request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        for token in request.consistency_tokens:
            if not token.startswith(_TOKEN):
                raise ConsistencyTokenInvalid(why="it is not of this fake")
        whole, index_id, return_n = self._cursors.get(request.cursor, (None, "", _DEFAULT_RETURN_N))
        if request.HasField("return_n"):
            return_n = request.return_n
        if not 1 <= return_n <= MAX_RETRIEVE_K:
            raise KOutOfRange(name="return_n", got=return_n, low=1, high=MAX_RETRIEVE_K)
        if request.cursor:
            if whole is None or index_id != request.index_id:
                raise CursorInvalid(why="it is not of this fake")
        else:
            whole = self._whole(request)
        return self._page(request, whole, return_n)

    def _whole(self, request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if request.neighbours_required and not request.neighbours_enabled:
            raise RankingInvalid(why="neighbours_required needs neighbours_enabled")
        if request.neighbours_required:
            raise NeighbourModelMissing
        ranked, target, scored_count = self._index.ranked(request)
        modality = None if request.all_modalities_included else target
        item_count = self._index.item_count(request.index_id, modality)
        is_read = scored_count is not None
        stop = pb.RERANK_STOP_COMPLETE if is_read else pb.RERANK_STOP_NOT_APPLICABLE
        whole = pb.SearchItemsResponse(
            items=ranked,
            model_fingerprint=MODEL.fingerprint,
            coverage=_whole_coverage(item_count),
            rerank=pb.RerankSummary(
                reranked_depth=scored_count,
                stop=pb.RERANK_STOP_DISABLED if request.rerank_disabled else stop,
                reranker=MODEL.fingerprint if scored_count else "",
            ),
            model_version=1,
        )
        searched = index_service_pb2.KEYWORD_STATE_SEARCHED if request.HasField("hybrid") else None
        for each in (target,) if modality else (TEXT, IMAGE):
            whole.retrievals.add(
                modality=each,
                item_count=self._index.item_count(request.index_id, each),
                keyword_state=searched,
            )
        if request.neighbours_enabled:
            whole.neighbours.stop = pb.NEIGHBOUR_STOP_NOT_SERVED
            whole.degradations.append(pb.DEGRADATION_NEIGHBOURS_SKIPPED)
        return whole

    def _described(self, index_id: str) -> pb.DescribeIndexResponse:
        parts = [
            index_service_pb2.IndexPart(
                modality=modality,
                item_count=self._index.item_count(index_id, modality),
                index_type="Flat",
                device="cpu",
            )
            for modality in (TEXT, IMAGE)
        ]
        item_count = sum(part.item_count for part in parts)
        return pb.DescribeIndexResponse(
            model_fingerprint=MODEL.fingerprint,
            embedding_dimension=MODEL.embedding_dimension,
            shards=[
                pb.ShardIndex(parts=parts, keyword_state=index_service_pb2.KEYWORD_STATE_DISABLED)
            ],
            coverage=_whole_coverage(item_count),
        )

    def _listed(self, request: pb.ListIndexesRequest) -> pb.ListIndexesResponse:
        size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE
        if not 1 <= size <= MAX_PAGE_SIZE:
            raise BatchSizeOutOfRange(name="page_size", got=size, low=1, high=MAX_PAGE_SIZE)
        later = [each for each in self._index.index_ids() if each > request.page_token]
        return pb.ListIndexesResponse(
            indexes=[
                index_service_pb2.IndexSummary(
                    index_id=each,
                    model_fingerprint=MODEL.fingerprint,
                    text_count=self._index.item_count(each, TEXT),
                    image_count=self._index.item_count(each, IMAGE),
                )
                for each in later[:size]
            ],
            next_page_token=later[size - 1] if len(later) > size else "",
        )

    def _page(
        self, request: pb.SearchItemsRequest, whole: pb.SearchItemsResponse, return_n: int
    ) -> pb.SearchItemsResponse:
        page = pb.SearchItemsResponse()
        page.CopyFrom(whole)
        rest = list(page.items)[return_n:]
        del page.items[return_n:]
        if request.content_included or request.attributes_included:
            stored = self._index.contents(request.index_id)
            for found in page.items:
                if found.item_id in stored:
                    if request.content_included:
                        found.content.CopyFrom(stored[found.item_id].content)
                    for name, value in stored[found.item_id].attributes.items():
                        found.attributes[name].CopyFrom(value)
        if rest:
            left = pb.SearchItemsResponse()
            left.CopyFrom(whole)
            del left.items[:]
            left.items.extend(rest)
            page.next_cursor = _CURSOR + str(len(self._cursors)).encode()
            self._cursors[page.next_cursor] = (left, request.index_id, return_n)
        return page

    def _batch(self, request: pb.BatchSearchItemsRequest) -> pb.BatchSearchItemsResponse:
        count = len(request.searches)
        if not 1 <= count <= MAX_SEARCH_COUNT:
            raise BatchSizeOutOfRange(name="searches", got=count, low=1, high=MAX_SEARCH_COUNT)
        response = pb.BatchSearchItemsResponse()
        for search in request.searches:
            result = response.results.add()
            try:
                result.response.CopyFrom(self._search(search))
            except TandemError as error:
                result.error.CopyFrom(error_message(error))
        return response

    def _ingest(self, request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        response = pb.IngestItemsResponse()
        errors = self._index.store(request.index_id, request.items)
        for item, error in zip(request.items, errors, strict=True):
            result = response.results.add(item_id=item.item_id)
            if error is not None:
                result.error.CopyFrom(error_message(error))
        response.consistency_token = self._new_token()
        return response

    def _new_token(self) -> str:
        self._write_count += 1
        return f"{_TOKEN}{self._write_count}"


def _whole_coverage(item_count: int) -> pb.Coverage:
    return pb.Coverage(
        answered_shard_count=1,
        shard_count=1,
        covered_item_count=item_count,
        item_count=item_count,
    )
