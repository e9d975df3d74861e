"""Defines a stage that a search's assembly adds after the rerank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.search.answer_names import DegradationKind, OrderedBy
from tandem.contract.search.query import SearchQuery
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match
from tandem.stages.retrieval import Embeddings


@dataclass(frozen=True, slots=True, eq=False)
class OrderedHits:
    """Holds a query's hits in the order of the earlier stages."""

    index_id: str
    fingerprint: str
    embeddings: Embeddings
    """Of the query."""
    query_modality: Modality
    hits: Mapping[Modality, Sequence[Hit]]
    """Of each modality that is searched for, with their embeddings."""
    matches: Mapping[str, Match] = field(default_factory=dict)
    """Of the hits that the cross-encoder scored, by item id."""


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """Holds a stage's scores, and what the answer says of it."""

    scores: Mapping[str, float] = field(default_factory=dict)
    """By item id: these items come first, the best score first; the others keep their order."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    degradations: tuple[DegradationKind, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `SearchResult`, by name."""


class Stage(Protocol):
    """Scores the first hits of a search again; a TandemError that it raises ends the search."""

    @property
    def name(self) -> str:
        """Names the stage in times, and in the ranks of an explanation."""

    @property
    def score_name(self) -> str:
        """Names its score among the terms of an explanation."""

    @property
    def ordered_by(self) -> OrderedBy:
        """What an item that it scored says to be ordered by."""

    @property
    def time_share(self) -> float:
        """The share of a search's time, 0 to 1, that the rerank leaves to it."""

    def is_asked(self, query: SearchQuery) -> bool:
        """Returns whether the search runs it."""

    async def score(
        self, query: SearchQuery, ordered: OrderedHits, deadline: Deadline
    ) -> StageOutcome:
        """Returns the scores of the first hits, as many as it reads."""
