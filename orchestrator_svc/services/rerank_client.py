"""The rerank_svc beside a shard, as plain functions over our own types. Protobuf ends here.

Each call gets what is left until `deadline_time` on the monotonic clock, less what it takes for the
answer to be here by then.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from orchestrator_svc.hit import MatchScore
from orchestrator_svc.services.breaker import BREAKER_RULE, BreakerRule
from orchestrator_svc.services.call_policy import Dependency
from orchestrator_svc.services.retry_budget import RetryBudget
from tandem.contract.content import Tokens
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


@dataclass(frozen=True, slots=True, eq=False)
class QueryCandidates:
    """A query and items of one shard to score against it."""

    tokens: Tokens
    item_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class ShardScores:
    """What one shard's cross-encoder made of candidates, and what that took."""

    matches: Mapping[str, MatchScore]
    """By item id; an item that is no longer there is left out."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    model_version: int = 0
    """By which all were scored; 0 where the service does not say."""


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
        """Whether `score` would be refused at once."""
        return self._dependency.is_refusing

    async def score(
        self,
        index_id: str,
        query: Tokens,
        fingerprint: str,
        item_ids: Sequence[str],
        deadline_time: float,
        model_version: int = 0,
    ) -> ShardScores:
        """Returns the scores by a version of the model, of which 0 leaves the choice.

        Raises ModelOutputInvalid where they cannot be used.
        """

        def check(response: rerank_service_pb2.ScoreCandidatesResponse) -> None:
            self._check_scores(response.scores, len(item_ids))

        response: rerank_service_pb2.ScoreCandidatesResponse = await self._dependency.ask(
            self._stub.ScoreCandidates,
            rerank_service_pb2.ScoreCandidatesRequest(
                index_id=index_id,
                query=tokens_to_proto(query),
                model_fingerprint=fingerprint,
                item_ids=item_ids,
                model_version=model_version,
            ),
            deadline_time,
            check,
        )
        return ShardScores(
            _matches(item_ids, response.scores),
            cost_from_proto(response.cost),
            response.model_version,
        )

    async def score_each(
        self,
        index_id: str,
        queries: Sequence[QueryCandidates],
        fingerprint: str,
        deadline_time: float,
        model_version: int = 0,
    ) -> tuple[list[Mapping[str, MatchScore] | TandemError], InferenceCost, int]:
        """Returns each query's scores, or why it has none; what they took together, and by which
        version they were made. `model_version` as in `score`."""

        def check(response: rerank_service_pb2.ScoreBatchResponse) -> None:
            if len(response.results) != len(queries):
                raise ModelOutputInvalid(
                    model=self._name, why=f"{len(response.results)} results of {len(queries)}"
                )
            for query, result in zip(queries, response.results, strict=True):
                if not result.HasField("error"):
                    self._check_scores(result.scores, len(query.item_ids))

        response: rerank_service_pb2.ScoreBatchResponse = await self._dependency.ask(
            self._stub.ScoreBatch,
            rerank_service_pb2.ScoreBatchRequest(
                index_id=index_id,
                model_fingerprint=fingerprint,
                queries=[
                    rerank_service_pb2.QueryCandidates(
                        query=tokens_to_proto(query.tokens), item_ids=query.item_ids
                    )
                    for query in queries
                ],
                model_version=model_version,
            ),
            deadline_time,
            check,
        )
        outcomes: list[Mapping[str, MatchScore] | TandemError] = [
            item_error_from_proto(result.error)
            if result.HasField("error")
            else _matches(query.item_ids, result.scores)
            for query, result in zip(queries, response.results, strict=True)
        ]
        return outcomes, cost_from_proto(response.cost), response.model_version

    async def describe_model(self, deadline_time: float) -> ModelDescription:
        """Returns what is served. A service that cannot say so is none the worse for scoring."""
        response: model_service_pb2.DescribeModelResponse = await self._dependency.tell(
            self._model.DescribeModel, model_service_pb2.DescribeModelRequest(), deadline_time
        )
        return model_from_proto(response.model)

    def _check_scores(
        self, scores: Sequence[rerank_service_pb2.CandidateScore], count: int
    ) -> None:
        if len(scores) != count:
            raise ModelOutputInvalid(model=self._name, why=f"{len(scores)} scores of {count}")
        for score in scores:
            if score.HasField("match_logit") and not (
                math.isfinite(score.match_logit) and 0.0 <= score.match_probability <= 1.0
            ):
                raise ModelOutputInvalid(model=self._name, why="a score is not a number")


def _matches(
    item_ids: Sequence[str], scores: Iterable[rerank_service_pb2.CandidateScore]
) -> Mapping[str, MatchScore]:
    return {
        item_id: MatchScore(score.match_logit, score.match_probability)
        for item_id, score in zip(item_ids, scores, strict=True)
        if score.HasField("match_logit")
    }
