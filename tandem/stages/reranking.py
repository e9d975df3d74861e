"""Defines the reranker of a search: candidates in, match scores out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tandem.chassis.deadline import Deadline
from tandem.contract.content import Content, Tokens
from tandem.contract.fusion_method import FusionMethod
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ModelDescription, relevance


@dataclass(frozen=True, slots=True)
class Match:
    """Holds the cross-encoder's score of one candidate."""

    logit: float
    probability: float | None
    """None if the cross-encoder was not calibrated."""

    @property
    def relevance(self) -> float:
        """The match on a scale of 0 to 1; a probability only if that is known."""
        return relevance(self.logit, self.probability)


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """Names the index and the model by which candidates are scored.

    Searches with equal queries can share one call, whatever their tokens and candidates.
    """

    index_id: str
    fingerprint: str
    model_version: int = 0
    """0 leaves the choice to the service."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Pairs a query's tokens with the items of one shard to score against them."""

    tokens: Tokens
    item_ids: Sequence[str]
    content: Content | None = None
    """The query itself, for a cross-encoder that reads contents."""


@dataclass(frozen=True, slots=True)
class ShardScores:
    """Holds one shard's scores of candidates by the cross-encoder, and their cost."""

    matches: Mapping[str, Match]
    """By item id, without the items that no longer exist."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    model_version: int = 0
    """The version that scored all of them; 0 if the service does not name it."""
    reranker: str = ""
    """The cross-encoder that scored them; empty if the service does not name it."""
    default_fusion: FusionMethod | None = None
    """How its authors combine both scores; None if the service does not say."""


class CandidateScorer(Protocol):
    """Scores candidates of one shard, as rerank_svc does; `RerankClient` says what it raises."""

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        ...

    async def score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ShardScores:
        """Returns the scores of the items that exist, all by one version of the model."""
        ...


class ModelDescriber(Protocol):
    """Describes a served cross-encoder; `RerankClient` says what it raises."""

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""
        ...

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        ...
