"""Calls one shard's rerank_svc with our own types; protobuf ends here."""

import math
from collections.abc import Iterable, Mapping, Sequence

import grpc

from orchestrator_svc.hit import Match
from orchestrator_svc.services.breaker import BREAKER_RULE, BreakerRule
from orchestrator_svc.services.call_policy import Dependency
from orchestrator_svc.services.interfaces import Candidates, ScoreQuery, ShardScores
from orchestrator_svc.services.retry_budget import RetryBudget
from tandem.chassis.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost, cost_from_proto
from tandem.contract.model_description import ModelDescription, model_from_proto
from tandem.errors import ModelOutputInvalid, TandemError
from tandem.v1 import (
    model_service_pb2,
    model_service_pb2_grpc,
    rerank_service_pb2,
    rerank_service_pb2_grpc,
)
from tandem.wire import item_error_from_proto, tokens_to_proto


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
        self._dependency = Dependency(self._name, retry_budget, breaker_rule)

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        return self._dependency.is_refusing

    async def score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ShardScores:
        """Returns the candidates' scores; raises ModelOutputInvalid for unusable ones."""

        def check(response: rerank_service_pb2.ScoreCandidatesResponse) -> None:
            self._check_scores(response.scores, candidates)

        response: rerank_service_pb2.ScoreCandidatesResponse = await self._dependency.ask(
            self._stub.ScoreCandidates,
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=query.index_id,
                query=tokens_to_proto(candidates.tokens),
                model_fingerprint=query.fingerprint,
                item_ids=candidates.item_ids,
                model_version=query.model_version,
            ),
            deadline,
            check,
        )
        return ShardScores(
            _matches(candidates, response.scores),
            cost_from_proto(response.cost),
            response.model_version,
        )

    async def score_each(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> tuple[list[Mapping[str, Match] | TandemError], InferenceCost, int]:
        """Returns each request's scores or error, their total cost, and the model's version."""

        def check(response: rerank_service_pb2.ScoreBatchResponse) -> None:
            if len(response.results) != len(requests):
                raise ModelOutputInvalid(
                    model=self._name, why=f"{len(response.results)} results of {len(requests)}"
                )
            for candidates, result in zip(requests, response.results, strict=True):
                if not result.HasField("error"):
                    self._check_scores(result.scores, candidates)

        response: rerank_service_pb2.ScoreBatchResponse = await self._dependency.ask(
            self._stub.ScoreBatch,
            rerank_service_pb2.ScoreBatchRequest(
                index_id=query.index_id,
                model_fingerprint=query.fingerprint,
                queries=[
                    rerank_service_pb2.QueryCandidates(
                        query=tokens_to_proto(each.tokens), item_ids=each.item_ids
                    )
                    for each in requests
                ],
                model_version=query.model_version,
            ),
            deadline,
            check,
        )
        outcomes: list[Mapping[str, Match] | TandemError] = [
            item_error_from_proto(result.error)
            if result.HasField("error")
            else _matches(candidates, result.scores)
            for candidates, result in zip(requests, response.results, strict=True)
        ]
        return outcomes, cost_from_proto(response.cost), response.model_version

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Describes the served model; a failure does not count against the scoring."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.tell(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline
        )
        return model_from_proto(response.model)

    def _check_scores(
        self, scores: Sequence[rerank_service_pb2.CandidateScore], candidates: Candidates
    ) -> None:
        count = len(candidates.item_ids)
        if len(scores) != count:
            raise ModelOutputInvalid(model=self._name, why=f"{len(scores)} scores of {count}")
        for score in scores:
            if score.HasField("match_logit") and not (
                math.isfinite(score.match_logit) and 0.0 <= score.match_probability <= 1.0
            ):
                raise ModelOutputInvalid(model=self._name, why="a score is not a number")


def _matches(
    candidates: Candidates, scores: Iterable[rerank_service_pb2.CandidateScore]
) -> Mapping[str, Match]:
    return {
        item_id: Match(score.match_logit, score.match_probability)
        for item_id, score in zip(candidates.item_ids, scores, strict=True)
        if score.HasField("match_logit")
    }
