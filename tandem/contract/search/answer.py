"""Defines what searches and writes answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tandem.contract.content import Content, Modality, TextUse
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.fusion import HybridRank
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import relevance
from tandem.contract.search.answer_names import (
    DegradationKind,
    ErrorReason,
    NeighbourStopReason,
    OrderedBy,
    RerankStopReason,
)
from tandem.contract.search_path import ShardRetrieval
from tandem.errors import TandemError


@dataclass(frozen=True, slots=True)
class ScoreTerm:
    """One term of a score: `value` times `weight`."""

    name: str
    """For example "similarity" or "match_logit"."""
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an item ranks where it does."""

    terms: tuple[ScoreTerm, ...]
    """The terms that sum to the score."""
    ranks: Mapping[str, int]
    """The rank after each stage, from 1, in the order of the stages."""


@dataclass(frozen=True, slots=True)
class FoundItem:
    """One found item."""

    item_id: str
    similarity: float
    """The bi-encoder's cosine similarity, -1 to 1."""
    match_logit: float | None
    """The cross-encoder's logit; None if it did not score the item."""
    match_probability: float | None
    """0 to 1; None if it did not score the item, or was not calibrated."""
    retrieve_rank: int
    """The rank in bi-encoder order, from 1."""
    final_rank: int
    """The rank in the answer, from 1."""
    content: Content | None
    """None unless content_included is set."""
    attributes: Attributes = field(default_factory=dict)
    """Empty unless content_included or attributes_included is set."""
    modality: Modality | None = None
    """None if unknown."""
    score: float = 0.0
    """The sort key among the items that were reranked in the same way."""
    explanation: Explanation | None = None
    """None unless explained is set."""
    neighbour_score: float | None = None
    """The neighbour model's score, -1 to 1; None if it did not score the item."""
    hybrid: HybridRank | None = None
    """The item's places in the two lists of a hybrid search; None in any other."""
    ordered_by: OrderedBy = OrderedBy.UNSPECIFIED
    """The stage that gave the score; UNSPECIFIED, which is "", from a server that does not say."""

    @property
    def relevance(self) -> float:
        """The match on a scale of 0 to 1, or the similarity of an item that was not reranked.

        It is a probability only where `match_probability` is set.
        """
        if self.match_logit is None:
            return self.similarity
        return relevance(self.match_logit, self.match_probability)


def ordering_stage(match_logit: float | None, neighbour_score: float | None) -> OrderedBy:
    """Returns the stage that gave an item its score."""
    if neighbour_score is not None:
        return OrderedBy.NEIGHBOURS
    return OrderedBy.RETRIEVE if match_logit is None else OrderedBy.RERANK


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """The time of each stage, measured by the orchestrator."""

    encode: float
    retrieve: float
    rerank: float
    fetch: float
    total: float
    rank: float = 0.0
    """Fusion, diversity and cursors."""
    neighbours: float = 0.0
    """Finding neighbours and scoring with the neighbour model."""


NO_SECONDS = StageSeconds(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the index was searched."""

    answered_shard_count: int
    shard_count: int
    covered_item_count: int
    """The items of the target modality on the shards that answered."""
    item_count: int | None
    """The same with the missing shards' last known counts; None if one never answered."""
    missing_shards: Mapping[int, ErrorReason]
    """The reason of each missing shard, by its number."""

    @property
    def is_full(self) -> bool:
        """Returns whether every shard answered; otherwise items may be missing."""
        return not self.missing_shards


@dataclass(frozen=True, slots=True)
class RerankSummary:
    """How deep the cross-encoder got, and why no deeper."""

    reranked_depth: int = 0
    """Candidates, from the first in retrieval order, that it was given."""
    stop: RerankStopReason = RerankStopReason.UNSPECIFIED
    """Why it ended there."""
    missing_count: int = 0
    """Of these, items that were no longer there, or had nothing it could read."""
    reranker: str = ""
    """The cross-encoder: a fingerprint, or a remote one's name with a digest of its settings."""
    probability_withheld: ErrorReason | None = None
    """Why scored items have no `match_probability`: UNCALIBRATED; None if nothing is withheld."""


@dataclass(frozen=True, slots=True)
class NeighbourSummary:
    """What the neighbour model scored, and why it stopped."""

    scored_count: int
    """Items, from the first."""
    stop: NeighbourStopReason
    """Why it stopped."""
    neighbour_model: str
    """The fingerprint of the model that scored them; empty if none did."""
    missing_shards: Mapping[int, ErrorReason]
    """The reason of each shard whose items are not among the neighbours, by its number."""


@dataclass(frozen=True, slots=True)
class Abstention:
    """Whether the index says that nothing in it matches, of a search that allows it to."""

    abstained: bool
    """Whether items were found, and none scores high enough."""
    max_false_answer_rate: float
    """The most queries without an answer that get one, as a share of them."""
    scorer: str
    """Whose scores were compared: the cross-encoder, or "bi-encoder" if none scored."""
    threshold: float
    """Every returned item has a higher match logit, or a higher similarity of the bi-encoder."""
    null_score_count: int
    """The null scores that the threshold comes from."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The items found, best first."""

    items: tuple[FoundItem, ...]
    model_fingerprint: str
    seconds: StageSeconds
    coverage: Coverage
    rerank: RerankSummary = field(default_factory=RerankSummary)
    degradations: tuple[DegradationKind, ...] = ()
    """How the answer is degraded; empty if it is not."""
    text_uses: tuple[TextUse, ...] = ()
    """How much of each query text the model read."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    next_cursor: bytes = b""
    """Pass it to `search_page` for the next items; empty if there are none."""
    model_version: int = 0
    """The model version that encoded the query and scored the items; 0 if no model ran."""
    retrievals: tuple[ShardRetrieval, ...] = ()
    """How each shard searched: the planner's choice and its reason; empty on pages of a cursor."""
    is_final: bool = True
    """False for the first answer of a stream, in bi-encoder order."""
    neighbours: NeighbourSummary | None = None
    """None unless neighbours_enabled is set."""
    abstention: Abstention | None = None
    """None unless max_false_answer_rate is set, and on pages of a cursor."""

    @property
    def abstained(self) -> bool:
        """Returns whether nothing in the index matches: it found items, and trusts none."""
        return self.abstention is not None and self.abstention.abstained

    @property
    def is_degraded(self) -> bool:
        """Returns whether the answer is degraded."""
        return bool(self.degradations)

    @property
    def why_empty(self) -> str:
        """Returns in words why there are no items; empty if there are some."""
        if self.items:
            return ""
        if self.abstained:
            return "nothing here matches: a query without an answer may score as high"
        if self.coverage.covered_item_count:
            return "no item fits: a filter or a limit of the search left all out"
        return (
            "the index has no item of the searched modality: a text finds images and an image "
            "finds texts, unless target_modality or all_modalities_included is set"
        )

    def metadata(self, item: FoundItem) -> dict[str, object]:
        """Returns what frameworks of RAG keep of an item in addition to its content."""
        return {
            "item_id": item.item_id,
            "modality": item.modality.value if item.modality else None,
            "rank": item.final_rank,
            "similarity": item.similarity,
            "match_probability": item.match_probability,
            "attributes": dict(item.attributes),
            "degradations": [str(each) for each in self.degradations],
            "model_fingerprint": self.model_fingerprint,
        }


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """The outcome of one item: it is stored durably, unless there is an error."""

    item_id: str
    error: TandemError | None
    consistency_token: str = ""
    """Pass it to a search that must see this item and the earlier ones of the same ingest."""
    text_use: TextUse | None = None
    """For a stored text: how much of it the model read."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of a removal."""

    removed_count: int
    """The number of ids that existed; with `dry_run`, of those that are selected."""
    consistency_token: str
    """Pass it to a search that must not see them."""
    is_complete: bool = True
    """Whether all is gone that should be; otherwise repeat the call."""
    item_ids: Sequence[str] = ()
    """The first that were selected; empty for a removal by id."""
    next_page_token: str = ""
    """Not empty if a part of the selection is left."""
