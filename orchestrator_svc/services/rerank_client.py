"""Calls one shard's rerank_svc with our own types; protobuf ends here."""

import math
from collections.abc import Iterable, Sequence

import grpc

from orchestrator_svc.services.breaker import BREAKER_RULE, BreakerRule
from orchestrator_svc.services.call_policy import Dependency
from orchestrator_svc.services.retry_budget import RetryBudget
from tandem.chassis.deadline import Deadline
from tandem.contract.content import Tokens
from tandem.contract.inference_cost import cost_from_proto
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import ModelOutputInvalid, QueryContentMissing, TandemError
from tandem.stages.neighbours import Graph, GraphScores
from tandem.stages.reranking import Candidates, Match, Matches, ScoredBatch, ScoreQuery
from tandem.v1 import (
    content_pb2,
    model_service_pb2,
    model_service_pb2_grpc,
    rerank_service_pb2,
    rerank_service_pb2_grpc,
)
from tandem.wire import (
    content_to_proto,
    fusion_from_proto,
    item_error_from_proto,
    tokens_to_proto,
)
from tandem.wire.neighbours import graph_to_proto

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

    def _content(self, candidates: Candidates) -> content_pb2.Content | None:
        if not self._sends_contents or candidates.content is None:
            return None
        return content_to_proto(candidates.content)

    async def _score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ScoredBatch:
        def check(response: rerank_service_pb2.ScoreCandidatesResponse) -> None:
            self._check_scores(response.scores, candidates)

        response: rerank_service_pb2.ScoreCandidatesResponse = await self._dependency.call(
            self._stub.ScoreCandidates,
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=query.index_id,
                query=tokens_to_proto(candidates.tokens),
                model_fingerprint=query.fingerprint,
                item_ids=candidates.item_ids,
                model_version=query.model_version,
                query_content=self._content(candidates),
            ),
            deadline,
            check,
        )
        return _scored(response, [_matches(candidates, response.scores)])

    async def _score_each(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        def check(response: rerank_service_pb2.ScoreBatchResponse) -> None:
            if len(response.results) != len(requests):
                raise ModelOutputInvalid(
                    model=self._name, why=f"{len(response.results)} results of {len(requests)}"
                )
            for candidates, result in zip(requests, response.results, strict=True):
                if not result.HasField("error"):
                    self._check_scores(result.scores, candidates)

        response: rerank_service_pb2.ScoreBatchResponse = await self._dependency.call(
            self._stub.ScoreBatch,
            rerank_service_pb2.ScoreBatchRequest(
                index_id=query.index_id,
                model_fingerprint=query.fingerprint,
                queries=[
                    rerank_service_pb2.QueryCandidates(
                        query=tokens_to_proto(each.tokens),
                        item_ids=each.item_ids,
                        query_content=self._content(each),
                    )
                    for each in requests
                ],
                model_version=query.model_version,
            ),
            deadline,
            check,
        )
        outcomes: list[Matches | TandemError] = [
            item_error_from_proto(result.error)
            if result.HasField("error")
            else _matches(candidates, result.scores)
            for candidates, result in zip(requests, response.results, strict=True)
        ]
        return _scored(response, outcomes)

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

        def check(response: rerank_service_pb2.ScoreTokensResponse) -> None:
            self._check_each(response.scores, len(candidates))
            if not all(score.HasField("match_logit") for score in response.scores):
                raise ModelOutputInvalid(model=self._name, why="a candidate has no score")

        response: rerank_service_pb2.ScoreTokensResponse = await self._dependency.call(
            self._stub.ScoreTokens,
            rerank_service_pb2.ScoreTokensRequest(
                query=tokens_to_proto(query),
                model_fingerprint=fingerprint,
                candidates=map(tokens_to_proto, candidates),
                model_version=model_version,
            ),
            deadline,
            check,
        )
        matches = [_match(each) for each in response.scores]
        cost = cost_from_proto(response.cost)
        return matches, ScoredBatch([], cost, response.model_version, response.reranker)

    @property
    def is_refusing_graphs(self) -> bool:
        """Whether the circuit breaker would refuse a graph now."""
        return self._graph_dependency.is_refusing

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items; raises ModelOutputInvalid for unusable ones.

        Raises NeighbourModelMissing if no neighbour model is served there.
        """
        count = len(graph.nodes) - 1

        def check(response: rerank_service_pb2.ScoreGraphResponse) -> None:
            if len(response.scores) != count:
                why = f"{len(response.scores)} scores of {count}"
                raise ModelOutputInvalid(model=self._graph_name, why=why)
            if not all(abs(score) <= _HIGHEST_COSINE for score in response.scores):
                raise ModelOutputInvalid(model=self._graph_name, why="a score is not a cosine")

        response: rerank_service_pb2.ScoreGraphResponse = await self._graph_dependency.call(
            self._stub.ScoreGraph,
            graph_to_proto(graph),
            deadline,
            check,
        )
        return GraphScores(
            list(response.scores), response.neighbour_model, cost_from_proto(response.cost)
        )

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Describes the served model; a failure does not count against the scoring."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.call_once(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline
        )
        return model_from_proto(response.model)

    def _check_scores(
        self, scores: Sequence[rerank_service_pb2.CandidateScore], candidates: Candidates
    ) -> None:
        self._check_each(scores, len(candidates.item_ids))

    def _check_each(self, scores: Sequence[rerank_service_pb2.CandidateScore], count: int) -> None:
        if len(scores) != count:
            raise ModelOutputInvalid(model=self._name, why=f"{len(scores)} scores of {count}")
        for score in scores:
            if score.HasField("match_logit") and not (
                math.isfinite(score.match_logit) and 0.0 <= score.match_probability <= 1.0
            ):
                raise ModelOutputInvalid(model=self._name, why="a score is not a number")


def _scored(
    response: rerank_service_pb2.ScoreCandidatesResponse | rerank_service_pb2.ScoreBatchResponse,
    outcomes: Sequence[Matches | TandemError],
) -> ScoredBatch:
    return ScoredBatch(
        outcomes,
        cost_from_proto(response.cost),
        response.model_version,
        response.reranker,
        fusion_from_proto(response.default_fusion),
    )


def _matches(
    candidates: Candidates, scores: Iterable[rerank_service_pb2.CandidateScore]
) -> Matches:
    return {
        item_id: _match(score)
        for item_id, score in zip(candidates.item_ids, scores, strict=True)
        if score.HasField("match_logit")
    }


def _match(score: rerank_service_pb2.CandidateScore) -> Match:
    has_probability = score.HasField("match_probability")
    return Match(score.match_logit, score.match_probability if has_probability else None)
