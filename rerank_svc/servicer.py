"""Implements RerankService."""

import time
from collections.abc import Sequence
from typing import Protocol

import grpc

from tandem.chassis.calls.channels import deadline_seconds
from tandem.chassis.process.side_thread import converted
from tandem.contract.content import Tokens
from tandem.contract.identifiers import check_index_id
from tandem.contract.inference_cost import cost_to_proto
from tandem.contract.limits import (
    MAX_PAIR_COUNT,
    MAX_SCORE_QUERY_COUNT,
    check_batch_size,
)
from tandem.errors import NeighbourModelMissing, TandemError
from tandem.reranking.metrics import observe_stage
from tandem.reranking.neighbour_scorer import NeighbourScorer
from tandem.stages.reranking import Candidates, Match, ScoredBatch
from tandem.v1 import rerank_service_pb2, rerank_service_pb2_grpc
from tandem.wire import duration_to_proto
from tandem.wire.neighbours import graph_from_proto
from tandem.wire.reranking import (
    candidates_from_proto,
    match_to_proto,
    score_batch_to_proto,
    scores_to_proto,
    tokens_of_request,
)


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
        query = candidates_from_proto(request)
        scored = await self.score(
            index_id,
            request.model_fingerprint,
            [query],
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version,
        )
        return scores_to_proto(scored, request)

    async def ScoreBatch(
        self,
        request: rerank_service_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreBatchResponse:
        """Scores the candidates of several queries; a query that fails does not affect others."""
        check_batch_size("queries", len(request.queries), MAX_SCORE_QUERY_COUNT)
        pair_count = sum(len(each.item_ids) for each in request.queries)
        if pair_count > MAX_PAIR_COUNT:
            check_batch_size("item_ids of all queries together", pair_count, MAX_PAIR_COUNT)
        scored = await self.score(
            check_index_id(request.index_id),
            request.model_fingerprint,
            [_query_or_error(each) for each in request.queries],
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version,
        )
        return score_batch_to_proto(scored, request)

    async def ScoreTokens(
        self,
        request: rerank_service_pb2.ScoreTokensRequest,
        context: grpc.aio.ServicerContext,
    ) -> rerank_service_pb2.ScoreTokensResponse:
        """Scores candidates by their tokens."""
        query, candidates = await converted(lambda: tokens_of_request(request))
        matches, scored = await self._reranker.score_tokens(
            request.model_fingerprint,
            query,
            candidates,
            deadline_seconds(context, self._default_timeout_seconds),
            request.model_version or None,
        )
        observe_stage("inference", scored.inference_seconds)
        return rerank_service_pb2.ScoreTokensResponse(
            scores=map(match_to_proto, matches),
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


def _query_or_error(message: rerank_service_pb2.QueryCandidates) -> Candidates | TandemError:
    try:
        return candidates_from_proto(message)
    except TandemError as error:
        return error.kept()
