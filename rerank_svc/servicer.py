"""Implements RerankService."""

import time

import grpc

from tandem.chassis.process.side_thread import converted
from tandem.contract.deadline import Deadline
from tandem.local.reranking.local_reranker import LocalReranker
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import RerankServiceServicer
from tandem.wire.neighbours import graph_from_proto, graph_scores_to_proto
from tandem.wire.reranking import (
    GIVEN_WIRE,
    QUERY_WIRE,
    batch_from_proto,
    candidates_from_proto,
    given_scores_to_proto,
    score_batch_to_proto,
    scores_to_proto,
)


class RerankServicer(RerankServiceServicer):
    """Scores candidates, and does not sort them."""

    def __init__(self, reranker: LocalReranker, default_timeout_seconds: float) -> None:
        self._reranker = reranker
        self._default_timeout_seconds = default_timeout_seconds

    async def ScoreCandidates(
        self, request: pb.ScoreCandidatesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreCandidatesResponse:
        """Scores one query's candidates."""
        query, candidates = QUERY_WIRE.from_proto(request), candidates_from_proto(request)
        scored = await self._reranker.score(query, [candidates], self._deadline(context))
        return scores_to_proto(scored, request)

    async def ScoreBatch(
        self, request: pb.ScoreBatchRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreBatchResponse:
        """Scores the candidates of several queries; a query that fails does not affect others."""
        query, requests = QUERY_WIRE.from_proto(request), batch_from_proto(request)
        scored = await self._reranker.score(query, requests, self._deadline(context))
        return score_batch_to_proto(scored, request)

    async def ScoreTokens(
        self, request: pb.ScoreTokensRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreTokensResponse:
        """Scores candidates by their tokens."""
        given = await converted(lambda: GIVEN_WIRE.from_proto(request))
        return given_scores_to_proto(
            *await self._reranker.score_given(given, self._deadline(context))
        )

    async def ScoreGraph(
        self, request: pb.ScoreGraphRequest, context: grpc.aio.ServicerContext
    ) -> pb.ScoreGraphResponse:
        """Scores a query's items by their neighbours."""
        start_time = time.perf_counter()
        scored = await self._reranker.score_graph(
            graph_from_proto(request), self._deadline(context)
        )
        return graph_scores_to_proto(scored, time.perf_counter() - start_time)

    def _deadline(self, context: grpc.aio.ServicerContext) -> Deadline:
        return Deadline.of_call(context, default_seconds=self._default_timeout_seconds)
