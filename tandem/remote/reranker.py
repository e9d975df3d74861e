"""Calls one shard's rerank_svc."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc

from tandem.chassis.calls.hung_peer import Peer
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import ModelDescription
from tandem.errors import QueryContentMissing
from tandem.remote.model import described_model
from tandem.stages.neighbours import Graph, GraphScores
from tandem.stages.reranking import (
    Candidates,
    GivenCandidates,
    Match,
    Reranker,
    ScoredBatch,
    ScoreQuery,
)
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.model_service_pb2_grpc import ModelServiceStub
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub
from tandem.wire.neighbours import graph_scores_from_proto, graph_to_proto
from tandem.wire.reranking import (
    GIVEN_WIRE,
    batch_to_proto,
    candidates_to_proto,
    given_scores_from_proto,
    score_batch_from_proto,
    scores_from_proto,
)

Response = TypeVar("Response")


class RemoteReranker(Reranker):
    """The reranker of a shard, behind a channel."""

    def __init__(self, channel: grpc.aio.Channel, number: int, model_set: str = "") -> None:
        """Takes the shard's number; errors name the reranker by `model_set` and number."""
        self._stub = RerankServiceStub(channel)
        self._model = ModelServiceStub(channel)
        self._name = f"{model_set}rerank-{number}"
        self._peer = Peer(channel, self._name)
        # Queries' contents, once a cross-encoder lacked them: a model in Triton never does, and a
        # picture is large.
        self._sends_contents = False

    async def score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns each request's scores or error; raises the error of a single request."""
        try:
            scored = await self._score(query, requests, deadline)
        except QueryContentMissing:
            if not self._may_send(requests):
                raise
            return await self._score(query, requests, deadline)
        lacking = [
            request
            for request, outcome in zip(requests, scored.outcomes, strict=True)
            if isinstance(outcome, QueryContentMissing)
        ]
        return await self._score(query, requests, deadline) if self._may_send(lacking) else scored

    def _may_send(self, lacking: Sequence[Candidates]) -> bool:
        """Returns whether to repeat a call with the queries' contents, as all calls from now on."""
        if self._sends_contents or all(each.content is None for each in lacking):
            return False
        self._sends_contents = True
        return True

    async def _score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        if len(requests) == 1:
            [request] = requests
            one: pb.ScoreCandidatesResponse = await self._call(
                self._stub.ScoreCandidates,
                candidates_to_proto(query, request, content_included=self._sends_contents),
                deadline,
            )
            return scores_from_proto(one, request, self._name)
        response: pb.ScoreBatchResponse = await self._call(
            self._stub.ScoreBatch,
            batch_to_proto(query, requests, content_included=self._sends_contents),
            deadline,
        )
        return score_batch_from_proto(response, requests, self._name)

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the scores of candidates that are not stored."""
        response: pb.ScoreTokensResponse = await self._call(
            self._stub.ScoreTokens, GIVEN_WIRE.to_proto(given), deadline
        )
        return given_scores_from_proto(response, len(given.candidates), self._name)

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items."""
        response: pb.ScoreGraphResponse = await self._call(
            self._stub.ScoreGraph, graph_to_proto(graph), deadline
        )
        return graph_scores_from_proto(response)

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        return await described_model(self._model, self._name, deadline)

    async def _call(
        self, method: Callable[..., Awaitable[Response]], request: object, deadline: Deadline
    ) -> Response:
        return await self._peer.call(method, request, deadline.left())
