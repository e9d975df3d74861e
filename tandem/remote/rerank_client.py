"""Calls one shard's rerank_svc with our own types; protobuf ends here."""

from collections.abc import Sequence

import grpc

from tandem.contract.content import Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import cost_from_proto
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import ModelOutputInvalid, QueryContentMissing
from tandem.search.calls.breaker import BREAKER_RULE, BreakerRule
from tandem.search.calls.call_policy import Dependency
from tandem.search.calls.retry_budget import RetryBudget
from tandem.stages.neighbours import Graph, GraphScores
from tandem.stages.reranking import Candidates, Match, ScoredBatch, ScoreQuery
from tandem.v1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    rerank_service_pb2,
    rerank_service_pb2_grpc,
)
from tandem.wire import tokens_to_proto
from tandem.wire.neighbours import graph_to_proto
from tandem.wire.reranking import (
    batch_to_proto,
    candidates_to_proto,
    matches_from_proto,
    score_batch_from_proto,
    scores_from_proto,
)

# Rounded, a cosine may exceed 1.
_HIGHEST_COSINE = 1.0 + 1e-4


class RerankClient:
    """Calls one shard's rerank_svc."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        number: int,
        retry_budget: RetryBudget | None = None,
        breaker_rule: BreakerRule = BREAKER_RULE,
    ) -> None:
        self._stub = rerank_service_pb2_grpc.RerankServiceStub(channel)
        self._model = model_service_pb2_grpc.ModelServiceStub(channel)
        self._name = f"rerank-{number}"
        self._sends_contents = False
        self._dependency = Dependency(self._name, retry_budget, breaker_rule)
        # Of its own: a neighbour model that fails must not stop the cross-encoder.
        self._graph_name = f"graph-{number}"
        self._graph_dependency = Dependency(self._graph_name, retry_budget, breaker_rule)

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        return self._dependency.is_refusing

    async def score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ScoredBatch:
        """Returns the scores of one query's candidates.

        Raises ModelOutputInvalid for unusable scores, and QueryContentMissing if the cross-encoder
        reads contents, and the query has none.
        """
        try:
            return await self._score(query, candidates, deadline)
        except QueryContentMissing:
            if not self._may_send([candidates]):
                raise
        return await self._score(query, candidates, deadline)

    async def score_each(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns each request's scores or error, and the cost of the whole call."""
        scored = await self._score_each(query, requests, deadline)
        lacking = [
            request
            for request, outcome in zip(requests, scored.outcomes, strict=True)
            if isinstance(outcome, QueryContentMissing)
        ]
        if self._may_send(lacking):
            return await self._score_each(query, requests, deadline)
        return scored

    def _may_send(self, lacking: Sequence[Candidates]) -> bool:
        """Returns whether to repeat the call with the queries' contents; then all calls send them.

        They are not sent before a cross-encoder lacks them: a model in Triton never does, and a
        picture is large.
        """
        if self._sends_contents or all(each.content is None for each in lacking):
            return False
        self._sends_contents = True
        return True

    async def _score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ScoredBatch:
        return await self._dependency.call(
            self._stub.ScoreCandidates,
            candidates_to_proto(query, candidates, content_included=self._sends_contents),
            deadline,
            lambda response: scores_from_proto(response, candidates, self._name),
        )

    async def _score_each(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        return await self._dependency.call(
            self._stub.ScoreBatch,
            batch_to_proto(query, requests, content_included=self._sends_contents),
            deadline,
            lambda response: score_batch_from_proto(response, requests, self._name),
        )

    async def score_tokens(
        self,
        fingerprint: str,
        query: Tokens,
        candidates: Sequence[Tokens],
        deadline: Deadline,
        model_version: int = 0,
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the scores of candidates that are not stored, and a batch of none with the cost.

        Raises ModelOutputInvalid for unusable scores, and QueryContentMissing if the cross-encoder
        is a remote one.
        """

        def read(
            response: rerank_service_pb2.ScoreTokensResponse,
        ) -> tuple[Sequence[Match], ScoredBatch]:
            found = matches_from_proto(response.scores, len(candidates), self._name)
            matches = [match for match in found if match is not None]
            if len(matches) != len(candidates):
                raise ModelOutputInvalid(model=self._name, why="a candidate has no score")
            cost = cost_from_proto(response.cost)
            return matches, ScoredBatch([], cost, response.model_version, response.reranker)

        return await self._dependency.call(
            self._stub.ScoreTokens,
            rerank_service_pb2.ScoreTokensRequest(
                query=tokens_to_proto(query),
                model_fingerprint=fingerprint,
                candidates=map(tokens_to_proto, candidates),
                model_version=model_version,
            ),
            deadline,
            read,
        )

    @property
    def is_refusing_graphs(self) -> bool:
        """Whether the circuit breaker would refuse a graph now."""
        return self._graph_dependency.is_refusing

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items; raises ModelOutputInvalid for unusable ones.

        Raises NeighbourModelMissing if no neighbour model is served there.
        """
        count = len(graph.nodes) - 1

        def read(response: rerank_service_pb2.ScoreGraphResponse) -> GraphScores:
            if len(response.scores) != count:
                why = f"{len(response.scores)} scores of {count}"
                raise ModelOutputInvalid(model=self._graph_name, why=why)
            if not all(abs(score) <= _HIGHEST_COSINE for score in response.scores):
                raise ModelOutputInvalid(model=self._graph_name, why="a score is not a cosine")
            cost = cost_from_proto(response.cost)
            return GraphScores(list(response.scores), response.neighbour_model, cost)

        return await self._graph_dependency.call(
            self._stub.ScoreGraph, graph_to_proto(graph), deadline, read
        )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Describes the served model; a failure does not count against the scoring."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.call_once(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline
        )
        return model_from_proto(response.model)
