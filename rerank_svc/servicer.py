"""Implements RerankService."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import grpc

from rerank_svc.metrics import observe_stage
from rerank_svc.neighbour_scorer import NeighbourScorer
from tandem.chassis.channels import deadline_seconds
from tandem.chassis.side_thread import converted
from tandem.contract.content import Tokens
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.inference_cost import cost_to_proto
from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_PAIR_COUNT,
    MAX_RERANK_K,
    MAX_SCORE_QUERY_COUNT,
)
from tandem.errors import BatchSizeOutOfRange, NeighbourModelMissing, TandemError
from tandem.stages.reranking import Candidates, Match, Matches, ScoredBatch
from tandem.v1 import rerank_service_pb2, rerank_service_pb2_grpc
from tandem.wire import (
    content_from_proto,
    duration_to_proto,
    fusion_to_proto,
    item_error_to_proto,
    tokens_from_proto,
)
from tandem.wire.neighbours import graph_from_proto


class CandidateReranker(Protocol):
    """Scores stored candidates: with a model in Triton, or with a remote one."""

    async def score(
        self,
        index_id: str,
        fingerprint: str,
        queries: Sequence[Candidates | TandemError],
        timeout_seconds: float,
        model_version: int | None = None,
    ) -> ScoredBatch:
        """Scores each query's candidates; an input that is an error stays one."""
        ...

    async def score_tokens(
        self,
        fingerprint: str,
        query: Tokens,
        candidates: Sequence[Tokens],
        timeout_seconds: float,
        model_version: int | None = None,
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Scores candidates that are not stored."""
        ...


class RerankServicer(rerank_service_pb2_grpc.RerankServiceServicer):
    """Scores candidates, and does not sort them."""

    def __init__(
        self,
        reranker: CandidateReranker,
        default_timeout_seconds: float,
        neighbour_scorer: NeighbourScorer | None = None,
    ) -> None:
        """Scores graphs only if there is a `neighbour_scorer`."""
        self._reranker = reranker
        self._default_timeout_seconds = default_timeout_seconds
        self._neighbour_scorer = neighbour_scorer

    async def ScoreCandidates(
        self,
        request: rerank_service_pb2.ScoreCandidatesRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreCandidatesResponse:
        """Scores one query's candidates."""
        index_id = check_index_id(request.index_id)
        query = _query(request)
        scored = await self.score(
            index_id,
            request.model_fingerprint,
            [query],
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version,
        )
        return rerank_service_pb2.ScoreCandidatesResponse(
            scores=_scores(request.item_ids, scored.matches),
            **_report(scored),
        )

    async def ScoreBatch(
        self,
        request: rerank_service_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreBatchResponse:
        """Scores the candidates of several queries; a query that fails does not affect others."""
        _check("queries", len(request.queries), MAX_SCORE_QUERY_COUNT)
        pair_count = sum(len(each.item_ids) for each in request.queries)
        if pair_count > MAX_PAIR_COUNT:
            _check("item_ids of all queries together", pair_count, MAX_PAIR_COUNT)
        scored = await self.score(
            check_index_id(request.index_id),
            request.model_fingerprint,
            [_query_or_error(each) for each in request.queries],
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version,
        )
        return rerank_service_pb2.ScoreBatchResponse(
            results=[
                _result(each.item_ids, outcome)
                for each, outcome in zip(request.queries, scored.outcomes, strict=True)
            ],
            **_report(scored),
        )

    async def ScoreTokens(
        self,
        request: rerank_service_pb2.ScoreTokensRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreTokensResponse:
        """Scores candidates by their tokens."""
        _check("candidates", len(request.candidates), MAX_CONTENT_COUNT)
        query, candidates = await converted(lambda: _tokens(request))
        matches, scored = await self._reranker.score_tokens(
            request.model_fingerprint,
            query,
            candidates,
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version or None,
        )
        observe_stage("inference", scored.inference_seconds)
        return rerank_service_pb2.ScoreTokensResponse(
            scores=map(_score, matches),
            inference_duration=duration_to_proto(scored.inference_seconds),
            cost=cost_to_proto(scored.cost),
            model_version=scored.model_version,
            reranker=scored.reranker,
        )

    async def ScoreGraph(
        self,
        request: rerank_service_pb2.ScoreGraphRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreGraphResponse:
        """Scores a query's items by their neighbours."""
        if self._neighbour_scorer is None:
            raise NeighbourModelMissing
        graph = graph_from_proto(request)
        start_time = time.perf_counter()
        scored = await self._neighbour_scorer.score(
            graph,
            deadline_seconds(context, self._default_timeout_seconds),
        )
        seconds = time.perf_counter() - start_time
        observe_stage("graph", seconds)
        return rerank_service_pb2.ScoreGraphResponse(
            scores=scored.scores,
            inference_duration=duration_to_proto(seconds),
            cost=cost_to_proto(scored.cost),
            neighbour_model=self._neighbour_scorer.fingerprint,
        )

    async def score(
        self,
        index_id: str,
        fingerprint: str,
        queries: Sequence[Candidates | TandemError],
        timeout_seconds: float,
        model_version: int,
    ) -> ScoredBatch:
        """Scores each query's candidates; callers of this process need no message.

        Version 0 is the one that serves.
        """
        scored = await self._reranker.score(
            index_id, fingerprint, queries, timeout_seconds, model_version or None
        )
        observe_stage("read", scored.read_seconds)
        observe_stage("inference", scored.inference_seconds)
        return scored


def _query(
    message: rerank_service_pb2.ScoreCandidatesRequest | rerank_service_pb2.QueryCandidates,
) -> Candidates:
    _check("item_ids", len(message.item_ids), MAX_RERANK_K)
    return Candidates(
        # A model without a cross-encoder makes none, and a remote one reads none.
        tokens_from_proto(message.query, may_be_empty=True),
        [check_item_id(item_id) for item_id in message.item_ids],
        content_from_proto(message.query_content) if message.HasField("query_content") else None,
    )


def _report(scored: ScoredBatch) -> Mapping[str, Any]:
    """Returns the fields of a response next to its scores."""
    return {
        "read_duration": duration_to_proto(scored.read_seconds),
        "inference_duration": duration_to_proto(scored.inference_seconds),
        "cost": cost_to_proto(scored.cost),
        "model_version": scored.model_version,
        "reranker": scored.reranker,
        "default_fusion": scored.default_fusion and fusion_to_proto(scored.default_fusion),
    }


def _tokens(request: rerank_service_pb2.ScoreTokensRequest) -> tuple[Tokens, list[Tokens]]:
    """Returns the tokens of the query and of the candidates."""
    query = tokens_from_proto(request.query, may_be_empty=True)
    return query, [tokens_from_proto(each, may_be_empty=True) for each in request.candidates]


def _query_or_error(message: rerank_service_pb2.QueryCandidates) -> Candidates | TandemError:
    try:
        return _query(message)
    except TandemError as error:
        return error.kept()


def _check(name: str, count: int, high: int) -> None:
    if not 1 <= count <= high:
        raise BatchSizeOutOfRange(name=name, got=count, low=1, high=high)


def _result(
    item_ids: Sequence[str], outcome: Matches | TandemError
) -> rerank_service_pb2.ScoreBatchResult:
    if isinstance(outcome, TandemError):
        return rerank_service_pb2.ScoreBatchResult(error=item_error_to_proto(outcome))
    return rerank_service_pb2.ScoreBatchResult(scores=_scores(item_ids, outcome))


def _scores(
    item_ids: Sequence[str], matches: Matches
) -> Iterator[rerank_service_pb2.CandidateScore]:
    return (_score(matches.get(item_id)) for item_id in item_ids)


def _score(score: Match | None) -> rerank_service_pb2.CandidateScore:
    if score is None:
        return rerank_service_pb2.CandidateScore()
    return rerank_service_pb2.CandidateScore(
        match_logit=score.logit, match_probability=score.probability
    )
