"""Serves ContentService from the fake's items, and scores documents by common words."""

from __future__ import annotations

import grpc

from tandem.client.testing.fake_calls import FakeCalls, error_message
from tandem.client.testing.fake_index import FakeIndex, check_content, modality_of
from tandem.client.testing.fake_words import (
    MODEL,
    content_words,
    embedding,
    item_words,
    match_logit,
    probability,
    similarity,
)
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_ITEM_ID_COUNT,
    MAX_PAGE_SIZE,
    MAX_RERANK_K,
)
from tandem.errors import (
    BatchSizeOutOfRange,
    ItemNotFound,
    TandemError,
    TokensInvalid,
    TruncationPolicyInvalid,
)
from tandem.v1 import content_pb2, content_service_pb2_grpc
from tandem.v1 import content_service_pb2 as pb

_DEFAULT_PAGE_SIZE = 100


class FakeContents(content_service_pb2_grpc.ContentServiceServicer):
    """Answers from a FakeIndex."""

    def __init__(self, index: FakeIndex, calls: FakeCalls) -> None:
        self._index = index
        self._calls = calls

    def FetchItems(
        self, request: pb.FetchItemsRequest, context: grpc.ServicerContext
    ) -> pb.FetchItemsResponse:
        return self._calls.answered(context, lambda: self._fetch(request))

    def ListItems(
        self, request: pb.ListItemsRequest, context: grpc.ServicerContext
    ) -> pb.ListItemsResponse:
        return self._calls.answered(context, lambda: self._list(request))

    def EmbedContents(
        self, request: pb.EmbedContentsRequest, context: grpc.ServicerContext
    ) -> pb.EmbedContentsResponse:
        return self._calls.answered(context, lambda: _embed(request))

    def ScoreDocuments(
        self, request: pb.ScoreDocumentsRequest, context: grpc.ServicerContext
    ) -> pb.ScoreDocumentsResponse:
        return self._calls.answered(context, lambda: self._score(request))

    def _fetch(self, request: pb.FetchItemsRequest) -> pb.FetchItemsResponse:
        _check_count("item_ids", len(request.item_ids), MAX_ITEM_ID_COUNT)
        item_ids = list(map(check_item_id, dict.fromkeys(request.item_ids)))
        items = self._index.contents(request.index_id)
        return pb.FetchItemsResponse(items=[items[each] for each in item_ids if each in items])

    def _list(self, request: pb.ListItemsRequest) -> pb.ListItemsResponse:
        size = request.page_size if request.HasField("page_size") else _DEFAULT_PAGE_SIZE
        _check_count("page_size", size, MAX_PAGE_SIZE)
        after = check_item_id(request.page_token).encode() if request.page_token else b""
        ids = sorted(self._index.contents(request.index_id), key=str.encode)
        left = [each for each in ids if each.encode() > after]
        token = left[size - 1] if len(left) > size else ""
        return pb.ListItemsResponse(item_ids=left[:size], next_page_token=token)

    def _score(self, request: pb.ScoreDocumentsRequest) -> pb.ScoreDocumentsResponse:
        check_content(request.query)
        _check_count("documents", len(request.documents), MAX_RERANK_K)
        _check_policy(request.truncation_policy)
        is_stored = any(each.WhichOneof("source") == "item_id" for each in request.documents)
        if is_stored:
            check_index_id(request.index_id)
            self._index.contents(request.index_id)
        response = pb.ScoreDocumentsResponse(model_fingerprint=MODEL.fingerprint)
        for document in request.documents:
            score = response.scores.add()
            try:
                self._score_one(request, document, score)
            except ItemNotFound as error:
                score.error.CopyFrom(error_message(error))
            except TandemError as error:
                if document.WhichOneof("source") == "item_id":
                    raise
                score.error.CopyFrom(error_message(error))
        if any(score.HasField("match_logit") for score in response.scores):
            response.reranker = MODEL.fingerprint
        return response

    def _score_one(
        self, request: pb.ScoreDocumentsRequest, document: pb.Document, score: pb.DocumentScore
    ) -> None:
        query, words = content_words(request.query), frozenset[str]()
        if document.WhichOneof("source") == "item_id":
            items = self._index.contents(request.index_id)
            if check_item_id(document.item_id) not in items:
                raise ItemNotFound(item_id=document.item_id)
            item = items[document.item_id]
            content, words = item.content, item_words(item)
            if modality_of(content) == modality_of(request.query):
                raise TokensInvalid.of_same_modality(document.item_id)
        else:
            check_content(document.content)
            content, words = document.content, content_words(document.content)
            score.similarity = similarity(query, words)
        if modality_of(content) != modality_of(request.query):
            score.match_logit = match_logit(query, words)
            score.match_probability = probability(score.match_logit)


def _embed(request: pb.EmbedContentsRequest) -> pb.EmbedContentsResponse:
    _check_count("contents", len(request.contents), MAX_CONTENT_COUNT)
    _check_policy(request.truncation_policy)
    response = pb.EmbedContentsResponse(model_fingerprint=MODEL.fingerprint, model_version=1)
    for content in request.contents:
        result = response.results.add()
        try:
            check_content(content)
            result.embedding.CopyFrom(embedding(content_words(content)))
        except TandemError as error:
            result.error.CopyFrom(error_message(error))
    return response


def _check_count(name: str, count: int, high: int) -> None:
    if not 1 <= count <= high:
        raise BatchSizeOutOfRange(name=name, got=count, low=1, high=high)


def _check_policy(policy: int) -> None:
    if policy == content_pb2.TRUNCATION_POLICY_BEST_WINDOW:
        raise TruncationPolicyInvalid(
            policy="BEST_WINDOW", why="it makes several embeddings of a text"
        )
