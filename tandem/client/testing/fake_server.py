"""Serves the fake on a port of the loopback, as Tandem's public services."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from typing_extensions import Self

from tandem.client.testing.fake_index import FakeIndex, StoredWords, checked_content
from tandem.client.testing.fake_words import (
    MODEL,
    content_words,
    embedding_bytes,
    match_logit,
    probability,
    similarity,
)
from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.filtering.attribute_wire import attributes_to_proto
from tandem.contract.identifiers import check_item_id
from tandem.contract.index_description import IndexPart, IndexSummary, ShardIndex
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import (
    DEFAULT_PAGE_SIZE,
    MAX_CONTENT_COUNT,
    MAX_DOCUMENT_COUNT,
    MAX_ITEM_ID_COUNT,
    MAX_PAGE_SIZE,
    MAX_SEARCH_COUNT,
    check_batch_size,
)
from tandem.contract.model_description import MODEL_WIRE
from tandem.contract.search.answer import Coverage, SearchResult
from tandem.contract.search.answer_wire import (
    INDEX_REMOVAL_WIRE,
    REMOVAL_WIRE,
    content_from_proto,
    content_to_proto,
    item_error_to_proto,
    result_to_proto,
)
from tandem.contract.search.documents import (
    DOCUMENT_QUERY_WIRE,
    SCORED_WIRE,
    Document,
    DocumentQuery,
    DocumentScore,
    ScoredDocuments,
)
from tandem.contract.search.indexes import DESCRIPTION_WIRE, PAGE_WIRE, IndexDescription, IndexPage
from tandem.contract.search.ingest_wire import batch_from_proto, outcomes_to_proto
from tandem.contract.search.item_changes import KeptItem
from tandem.contract.search.item_changes_wire import (
    CHANGE_WIRE,
    CHANGES_WIRE,
    KEPT_WIRE,
    LISTING_WIRE,
    REMOVAL_QUERY_WIRE,
)
from tandem.contract.search.query import StoredItem
from tandem.contract.search.query_wire import (
    TRUNCATION_POLICY_WIRE,
    page_query_from_proto,
    query_from_proto,
)
from tandem.contract.search.score_calibration import SCORE_CALIBRATION_WIRE
from tandem.contract.search_path import KeywordState
from tandem.errors import (
    ItemNotFound,
    TandemError,
    TokensInvalid,
    TruncationPolicyInvalid,
)
from tandem.v1 import (
    content_service_pb2,
    content_service_pb2_grpc,
    index_service_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    search_service_pb2_grpc,
)
from tandem.v1 import search_service_pb2 as pb

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")

# A HealthCheckResponse whose status is SERVING.
_SERVING = b"\x08\x01"


class FakeServer:
    """A fake of Tandem for callers' tests. Use it in a with statement, or close it.

    An item is found by the words that it shares with the query: those of its text, or of an image
    those of its id, its attributes and its bytes if they are UTF-8. Queries are refused as Tandem
    does. It ignores fusion, diversity, adaptive_depth, explained and truncation; a hybrid search
    counts the words that a text or the attribute caption has, and always fuses by reciprocal rank.
    ContentService embeds words by their hashes.
    """

    def __init__(self) -> None:
        """Serves at once; `address` is for a client."""
        self._servicer = _FakeServicer()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        both = self._servicer, self._server
        search_service_pb2_grpc.add_SearchServiceServicer_to_server(*both)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(*both)
        content_service_pb2_grpc.add_ContentServiceServicer_to_server(*both)
        self._server.add_generic_rpc_handlers((_FakeHealth(),))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"127.0.0.1:{port}"

    def fail(self, error: TandemError, times: int = 1) -> None:
        """Makes the next calls fail, whatever their method, to test how a caller handles it.

        A client repeats calls that failed as unavailable; see `RetryPolicy`. With times=0 no call
        fails any more.
        """
        if times == 0:
            self._servicer.failures.clear()
        self._servicer.failures.extend([error] * times)

    def close(self) -> None:
        """Stops serving; calls in flight are cancelled."""
        self._server.stop(None).wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _answering(
    method: "Callable[[_FakeServicer, _Request], _Answer]",
) -> "Callable[[_FakeServicer, _Request, grpc.ServicerContext], _Answer]":
    """Returns the method of a service, which fails as Tandem's do, or as a test asks."""

    def answer(
        servicer: "_FakeServicer", request: _Request, context: grpc.ServicerContext
    ) -> _Answer:
        return servicer.answered(context, partial(method, servicer, request))

    return answer


class _FakeServicer(
    search_service_pb2_grpc.SearchServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
    content_service_pb2_grpc.ContentServiceServicer,
):
    """Converts messages, and answers from a FakeIndex."""

    def __init__(self) -> None:
        self.failures: deque[TandemError] = deque()
        self._index = FakeIndex()

    def answered(self, context: grpc.ServicerContext, answer: Callable[[], _Answer]) -> _Answer:
        """Returns the answer, or ends the call with its error."""
        try:
            if self.failures:
                raise self.failures.popleft()
            return answer()
        except TandemError as error:
            context.set_trailing_metadata((("tandem-reason", error.reason),))
            context.abort(grpc.StatusCode[error.status], error.message)
            raise AssertionError("context.abort returned") from error

    @_answering
    def SearchItems(self, request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        return result_to_proto(self._searched(request))

    def StreamSearchItems(
        self, request: pb.StreamSearchItemsRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamSearchItemsResponse]:
        first = pb.SearchItemsRequest()
        first.CopyFrom(request.search)
        first.rerank_disabled = True
        found = self.answered(context, lambda: replace(self._searched(first), next_cursor=b""))
        answer = result_to_proto(found)
        yield pb.StreamSearchItemsResponse(phase=pb.SEARCH_PHASE_RETRIEVED, answer=answer)
        answer = self.answered(context, lambda: result_to_proto(self._searched(request.search)))
        yield pb.StreamSearchItemsResponse(phase=pb.SEARCH_PHASE_FINAL, answer=answer)

    @_answering
    def BatchSearchItems(self, request: pb.BatchSearchItemsRequest) -> pb.BatchSearchItemsResponse:
        check_batch_size("searches", len(request.searches), MAX_SEARCH_COUNT)
        return pb.BatchSearchItemsResponse(results=map(self._batch_result, request.searches))

    def IngestItems(
        self, request_iterator: Iterator[pb.IngestItemsRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.IngestItemsResponse]:
        for request in request_iterator:
            batch = batch_from_proto(request)
            store = partial(self._index.store, batch.index_id, batch.items)
            yield outcomes_to_proto(self.answered(context, store))

    @_answering
    def ChangeItems(self, request: pb.ChangeItemsRequest) -> pb.ChangeItemsResponse:
        return CHANGES_WIRE.to_proto(self._index.change(CHANGE_WIRE.from_proto(request)))

    @_answering
    def RemoveItems(self, request: pb.RemoveItemsRequest) -> pb.RemoveItemsResponse:
        return REMOVAL_WIRE.to_proto(self._index.remove(REMOVAL_QUERY_WIRE.from_proto(request)))

    @_answering
    def RemoveIndex(self, request: pb.RemoveIndexRequest) -> pb.RemoveIndexResponse:
        return INDEX_REMOVAL_WIRE.to_proto(self._index.remove_index(request.index_id))

    @_answering
    def SetCalibrations(self, request: pb.SetCalibrationsRequest) -> pb.SetCalibrationsResponse:
        """Counts what a real one would keep: scores of the fake always have one meaning."""
        self._index.items(request.index_id)
        kinds = {SCORE_CALIBRATION_WIRE.from_proto(each).kind for each in request.calibrations}
        return pb.SetCalibrationsResponse(calibration_count=len(kinds))

    @_answering
    def DescribeIndex(self, request: pb.DescribeIndexRequest) -> pb.DescribeIndexResponse:
        return DESCRIPTION_WIRE.to_proto(self._described(request.index_id))

    @_answering
    def ListIndexes(self, request: pb.ListIndexesRequest) -> pb.ListIndexesResponse:
        ids, last = _page(self._index.index_ids(), request)
        return PAGE_WIRE.to_proto(IndexPage(tuple(map(self._summary, ids)), last))

    @_answering
    def DescribeModel(self, request: Message) -> model_service_pb2.DescribeModelResponse:
        return model_service_pb2.DescribeModelResponse(model=MODEL_WIRE.to_proto(MODEL))

    @_answering
    def FetchItems(
        self, request: content_service_pb2.FetchItemsRequest
    ) -> content_service_pb2.FetchItemsResponse:
        check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_ID_COUNT)
        item_ids = list(map(check_item_id, dict.fromkeys(request.item_ids)))
        items = self._index.items(request.index_id)
        response = content_service_pb2.FetchItemsResponse()
        for item_id in filter(items.__contains__, item_ids):
            stored = items[item_id]
            kept = response.items.add()
            kept.CopyFrom(_item(item_id, stored))
            if request.content_excluded:
                kept.ClearField("content")
            if request.embeddings_included:
                response.model_fingerprint = MODEL.fingerprint
                modality = MODALITY_WIRE.to_proto(stored.content.modality)
                response.embeddings.add(modality=modality).embedding.values = embedding_bytes(
                    stored.words
                )
        return response

    @_answering
    def ListItems(
        self, request: content_service_pb2.ListItemsRequest
    ) -> content_service_pb2.ListItemsResponse:
        if request.page_token:
            check_item_id(request.page_token)
        asked = LISTING_WIRE.from_proto(request)
        ids, last = _page(self._index.selected(asked.index_id, asked.selection), request)
        stored = self._index.items(asked.index_id)
        items = (KeptItem(each, None, stored[each].item.attributes) for each in ids)
        return content_service_pb2.ListItemsResponse(
            item_ids=ids,
            next_page_token=last,
            items=map(KEPT_WIRE.to_proto, items) if asked.attributes_included else (),
        )

    @_answering
    def EmbedContents(
        self, request: content_service_pb2.EmbedContentsRequest
    ) -> content_service_pb2.EmbedContentsResponse:
        check_batch_size("contents", len(request.contents), MAX_CONTENT_COUNT)
        _check_policy(TRUNCATION_POLICY_WIRE.from_proto(request.truncation_policy))
        response = content_service_pb2.EmbedContentsResponse(
            model_fingerprint=MODEL.fingerprint, model_version=1
        )
        for content in request.contents:
            result = response.results.add()
            try:
                words = content_words(checked_content(content_from_proto(content)))
                result.embedding.values = embedding_bytes(words)
            except TandemError as error:
                result.error.CopyFrom(item_error_to_proto(error))
        return response

    @_answering
    def ScoreDocuments(
        self, request: content_service_pb2.ScoreDocumentsRequest
    ) -> content_service_pb2.ScoreDocumentsResponse:
        return SCORED_WIRE.to_proto(self._scored(DOCUMENT_QUERY_WIRE.from_proto(request)))

    def _searched(self, request: pb.SearchItemsRequest) -> SearchResult:
        if request.cursor:
            return self._index.page(page_query_from_proto(request))
        return self._index.search(query_from_proto(request))

    def _batch_result(self, request: pb.SearchItemsRequest) -> pb.BatchSearchResult:
        try:
            return pb.BatchSearchResult(response=result_to_proto(self._searched(request)))
        except TandemError as error:
            return pb.BatchSearchResult(error=item_error_to_proto(error))

    def _described(self, index_id: str) -> IndexDescription:
        count = self._index.item_count
        parts = [IndexPart(modality=each, item_count=count(index_id, each)) for each in Modality]
        total = count(index_id, *Modality)
        return IndexDescription(
            MODEL.fingerprint,
            MODEL.embedding_dimension,
            (ShardIndex(0, parts, KeywordState.DISABLED),),
            (),
            Coverage(1, 1, total, total, {}),
        )

    def _summary(self, index_id: str) -> IndexSummary:
        counts = (
            self._index.item_count(index_id, each) for each in (Modality.TEXT, Modality.IMAGE)
        )
        return IndexSummary(index_id, MODEL.fingerprint, *counts)

    def _scored(self, query: DocumentQuery) -> ScoredDocuments:
        check_batch_size("documents", len(query.documents), MAX_DOCUMENT_COUNT)
        _check_policy(query.truncation_policy)
        checked_content(query.query)
        scores = tuple(self._score(query, each) for each in query.documents)
        is_reranked = any(each.match_logit is not None for each in scores)
        reranker = MODEL.fingerprint if is_reranked else ""
        return ScoredDocuments(scores, MODEL.fingerprint, reranker, InferenceCost())

    def _score(self, query: DocumentQuery, document: Document | TandemError) -> DocumentScore:
        near = None
        if isinstance(document, StoredItem):
            stored = self._index.items(query.index_id).get(document.item_id)
            if stored is None:
                error = ItemNotFound(item_id=document.item_id)
                return DocumentScore(None, None, None, error)
            content, words = stored.content, stored.words
            if content.modality is query.query.modality:
                raise TokensInvalid.of_same_modality(document.item_id)
        else:
            try:
                content = checked_content(document)
            except TandemError as error:
                return DocumentScore(None, None, None, error)
            words = content_words(content)
            near = similarity(content_words(query.query), words)
        if content.modality is query.query.modality:
            return DocumentScore(None, None, near)
        logit = match_logit(content_words(query.query), words)
        return DocumentScore(logit, probability(logit), near)


class _FakeHealth(grpc.GenericRpcHandler):
    """Says that the fake serves; otherwise each client's connection would log an error.

    It needs no package that has the messages of health checks.
    """

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a health check; None for another call."""
        if call.method == "/grpc.health.v1.Health/Watch":
            return grpc.unary_stream_rpc_method_handler(_watch)
        if call.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: _SERVING)
        return None


def _watch(_request: bytes, _context: grpc.ServicerContext, send: Callable[[bytes], None]) -> None:
    # The call stays open, and takes no thread.
    send(_SERVING)


# As grpcio-health-checking has it.
_watch.experimental_non_blocking = True  # type: ignore[attr-defined]


def _item(item_id: str, stored: StoredWords) -> index_service_pb2.Item:
    return index_service_pb2.Item(
        item_id=item_id,
        content=content_to_proto(stored.content),
        attributes=attributes_to_proto(stored.item.attributes),
    )


def _page(
    ids: Sequence[str], request: pb.ListIndexesRequest | content_service_pb2.ListItemsRequest
) -> tuple[list[str], str]:
    """Returns the sorted ids of a page, and its last if there are more."""
    size = request.page_size if request.HasField("page_size") else DEFAULT_PAGE_SIZE
    check_batch_size("page_size", size, MAX_PAGE_SIZE)
    left = [each for each in ids if each.encode() > request.page_token.encode()]
    return left[:size], left[size - 1] if len(left) > size else ""


def _check_policy(policy: TruncationPolicy) -> None:
    if policy is TruncationPolicy.BEST_WINDOW:
        raise TruncationPolicyInvalid(
            policy="BEST_WINDOW", why="it makes several embeddings of a text"
        )
