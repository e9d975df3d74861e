"""Defines the reranker of a search: candidates in, match scores out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

import numpy as np

from tandem.contract.content import Content, Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.fusion import FusionMethod
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import MAX_CONTENT_COUNT, MAX_RERANK_K, check_batch_size
from tandem.contract.model_description import ModelDescription, ProbabilityCalibration, relevance
from tandem.errors import TandemError
from tandem.stages.neighbours import Graph, GraphScores


@dataclass(frozen=True, slots=True)
class Match:
    """Holds the cross-encoder's score of one candidate."""

    logit: float
    probability: float | None
    """None if the cross-encoder was not calibrated."""

    @classmethod
    def of(cls, logit: float, calibration: ProbabilityCalibration | None) -> Self:
        """Returns the match of a logit, with a probability if the model was calibrated."""
        probability = None if calibration is None else calibration.probability(logit)
        # In the precision of a message: a reranker behind a socket gives the same.
        return cls(
            float(np.float32(logit)),
            None if probability is None else float(np.float32(probability)),
        )

    @property
    def relevance(self) -> float:
        """The match on a scale of 0 to 1; a probability only if that is known."""
        return relevance(self.logit, self.probability)


@dataclass(frozen=True, slots=True)
class ScoreQuery:
    """Names the index and the model by which candidates are scored.

    Searches with equal queries can share one call, whatever their tokens and candidates. Raises
    IndexIdInvalid.
    """

    index_id: str
    fingerprint: str
    model_version: int = 0
    """0 leaves the choice to the service."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Pairs a query's tokens with the items of one shard to score against them.

    Raises BatchSizeOutOfRange and ItemIdInvalid.
    """

    tokens: Tokens
    item_ids: Sequence[str]
    content: Content | None = None
    """The query itself, for a cross-encoder that reads contents."""

    def __post_init__(self) -> None:
        check_batch_size("item_ids", len(self.item_ids), MAX_RERANK_K)
        for item_id in self.item_ids:
            check_item_id(item_id)


@dataclass(frozen=True, slots=True, eq=False)
class GivenCandidates:
    """Pairs a query's tokens with those of candidates that are not stored.

    Raises BatchSizeOutOfRange.
    """

    fingerprint: str
    """Of the model that made the tokens."""
    query: Tokens
    candidates: Sequence[Tokens]
    model_version: int = 0
    """0 leaves the choice to the service."""

    def __post_init__(self) -> None:
        check_batch_size("candidates", len(self.candidates), MAX_CONTENT_COUNT)


Matches: TypeAlias = Mapping[str, Match]
"""One query's scores by item id, without the items that no longer exist."""


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """Holds the scores of several queries' candidates by one cross-encoder, and their cost."""

    outcomes: Sequence[Matches | TandemError]
    """One for each query."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    model_version: int = 0
    """The version that scored all of them; 0 if the service does not name it."""
    reranker: str = ""
    """The cross-encoder's fingerprint, or a remote one's identity; empty if it is not named."""
    default_fusion: FusionMethod | None = None
    """How its authors combine both scores; None if that is not said."""
    read_seconds: float = 0.0
    inference_seconds: float = 0.0

    @property
    def matches(self) -> Matches:
        """The scores of a batch of one query; raises its error."""
        [outcome] = self.outcomes
        if isinstance(outcome, TandemError):
            raise outcome
        return outcome


class Reranker(Protocol):
    """Scores what a query found: here, or behind a socket. It sorts nothing."""

    async def score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns each request's scores or error, all by one version of the model.

        A request is a query with candidates that one shard stores; what is not stored there has no
        score. Raises the errors of the whole call: CrossEncoderMissing, IndexNotFound,
        ModelMismatch, BatchSizeOutOfRange, DeadlineExceeded, and errors of store and model.
        """

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the candidates' scores, and a batch of none with the cost.

        Raises as `score` does, TokensInvalid, and QueryContentMissing of a model that reads no
        tokens.
        """

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of a graph's items; raises NeighbourModelMissing, ModelMismatch."""

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that scores."""
