"""Fake services that record their requests and do what a test scripts before they answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import grpc

from tandem.chassis.calls.status import abort
from tandem.contract.model_description import MODEL_WIRE, ModelDescription
from tandem.errors import CrossEncoderMissing, ModelUnavailable, NeighbourModelMissing
from tandem.v1 import model_service_pb2 as model_pb
from tandem.v1 import rerank_service_pb2 as rerank_pb
from tandem.v1.error_reason_pb2 import ItemError
from tandem.v1.model_service_pb2_grpc import ModelServiceServicer
from tandem.v1.rerank_service_pb2_grpc import RerankServiceServicer
from tandem.wire import tokens_from_proto

# What a test runs before a method answers: it may wait, and it may raise.
Before = Callable[[object], Awaitable[None]]

ScoreAnswer = Callable[
    [rerank_pb.ScoreCandidatesRequest, grpc.aio.ServicerContext],
    Awaitable[rerank_pb.ScoreCandidatesResponse],
]


@dataclass
class Scripted:
    """Records a service's requests, and runs a test's script before it answers."""

    calls: list[tuple[str, object]] = field(default_factory=list)
    before: dict[str, Before] = field(default_factory=dict)

    async def asked(self, method: str, request: object) -> None:
        """Notes the call, then does what the test wants done."""
        self.calls.append((method, request))
        if method in self.before:
            await self.before[method](request)

    def requests(self, method: str) -> list[object]:
        """Returns the requests of one method, in their order."""
        return [request for name, request in self.calls if name == method]


class Describing(Scripted, ModelServiceServicer):
    """Describes its model, or reports that it has none."""

    description: ModelDescription | None = None

    async def DescribeModel(
        self, request: model_pb.DescribeModelRequest, context: grpc.aio.ServicerContext
    ) -> model_pb.DescribeModelResponse:
        """Describes."""
        await self.asked("DescribeModel", request)
        if self.description is None:
            await abort(context, ModelUnavailable(model="it", why="nobody knows it"))
        return model_pb.DescribeModelResponse(model=MODEL_WIRE.to_proto(self.description))


class FakeReranker(Describing, RerankServiceServicer):
    """Scores by `logits`, at a pace of `pair_seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: dict[str, float] = {}
        """By item id; what has none is no longer there for the reranker."""
        self.model_version = 0
        """The version it scores by if the request names none; 0 is a service without versions."""
        self.pair_seconds = 0.0
        self.default_fusion = "FUSION_METHOD_UNSPECIFIED"
        """Of the model's authors."""
        self.is_calibrated = True
        """Whether scores have probabilities."""
        self.query_errors: dict[int, ItemError] = {}
        """Of ScoreBatch, by the query's place."""
        self.answer_scores: ScoreAnswer | None = None
        """What answers ScoreCandidates in its place."""
        self.graph_scores: Sequence[float] | None = None
        """Of a graph's first items; None is a service without a neighbour model."""

    async def ScoreCandidates(
        self, request: rerank_pb.ScoreCandidatesRequest, context: grpc.aio.ServicerContext
    ) -> rerank_pb.ScoreCandidatesResponse:
        """Scores one query's."""
        await self.asked("ScoreCandidates", request)
        if self.answer_scores:
            return await self.answer_scores(request, context)
        if tokens_from_proto(request.query, may_be_empty=True).is_empty:
            await abort(context, CrossEncoderMissing(what="a rerank"))
        await self._work(len(request.item_ids))
        response = rerank_pb.ScoreCandidatesResponse(
            scores=self._scores(request.item_ids),
            model_version=request.model_version or self.model_version,
            default_fusion=self.default_fusion,
        )
        response.cost.pair_count = len(request.item_ids)
        return response

    async def ScoreBatch(
        self, request: rerank_pb.ScoreBatchRequest, context: grpc.aio.ServicerContext
    ) -> rerank_pb.ScoreBatchResponse:
        """Scores several queries'."""
        await self.asked("ScoreBatch", request)
        pair_count = sum(len(query.item_ids) for query in request.queries)
        await self._work(pair_count)
        response = rerank_pb.ScoreBatchResponse(
            results=[
                rerank_pb.ScoreBatchResult(error=self.query_errors[place])
                if place in self.query_errors
                else rerank_pb.ScoreBatchResult(scores=self._scores(query.item_ids))
                for place, query in enumerate(request.queries)
            ],
            model_version=request.model_version or self.model_version,
        )
        response.cost.pair_count = pair_count
        return response

    async def ScoreTokens(
        self, request: rerank_pb.ScoreTokensRequest, context: grpc.aio.ServicerContext
    ) -> rerank_pb.ScoreTokensResponse:
        """Scores candidates by their place: 1, 2, 3."""
        await self.asked("ScoreTokens", request)
        count = len(request.candidates)
        scores = [
            rerank_pb.CandidateScore(
                match_logit=place, match_probability=place / 100 if self.is_calibrated else None
            )
            for place in range(1, count + 1)
        ]
        response = rerank_pb.ScoreTokensResponse(scores=scores, reranker="cross-a")
        response.cost.pair_count = count
        return response

    async def ScoreGraph(
        self, request: rerank_pb.ScoreGraphRequest, context: grpc.aio.ServicerContext
    ) -> rerank_pb.ScoreGraphResponse:
        """Scores the items by their place."""
        await self.asked("ScoreGraph", request)
        if self.graph_scores is None:
            await abort(context, NeighbourModelMissing())
        return rerank_pb.ScoreGraphResponse(
            scores=self.graph_scores[: len(request.nodes) - 1], neighbour_model="neighbours-a"
        )

    async def _work(self, pair_count: int) -> None:
        if self.pair_seconds:
            await asyncio.sleep(self.pair_seconds * pair_count)

    def _scores(self, item_ids: Iterable[str]) -> list[rerank_pb.CandidateScore]:
        return [
            rerank_pb.CandidateScore(
                match_logit=self.logits[item_id],
                match_probability=1 / (1 + math.exp(-self.logits[item_id]))
                if self.is_calibrated
                else None,
            )
            if item_id in self.logits
            else rerank_pb.CandidateScore()
            for item_id in item_ids
        ]
