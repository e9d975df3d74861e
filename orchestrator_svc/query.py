"""What a search asks for."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator_svc.depth import Depth
from tandem.content import Content, Encoding, Modality, TruncationPolicy
from tandem.filters import Filter


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item of the searched index, as a query."""

    item_id: str


@dataclass(frozen=True, slots=True, eq=False)
class GivenEncoding:
    """What the caller had encoded before."""

    encoding: Encoding
    fingerprint: str


@dataclass(frozen=True, slots=True, eq=False)
class QueryPart:
    """One of the things a query is made of, and its share; a negative one turns away from it."""

    source: Content | StoredItem | GivenEncoding
    weight: float = 1.0


class FusionMethod(enum.Enum):
    """Ways of making one score of two (Geigle et al. 2022, section 6)."""

    CROSS_ENCODER = "cross_encoder"
    ADD = "add"
    NORMALISED_ADD = "normalised_add"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRule:
    """How scores make the order, and what is left out of it."""

    fusion: FusionMethod = FusionMethod.CROSS_ENCODER
    cross_encoder_weight: float = 0.5
    """0 to 1; of the two sums."""
    min_probability: float | None = None
    relevance_weight: float | None = None
    """Maximal marginal relevance: 1 closeness alone, 0 variety alone; None leaves the order."""
    duplicate_similarity: float | None = None
    """Of items at least this similar only the best stays; None leaves all."""

    @property
    def are_embeddings_needed(self) -> bool:
        """Whether candidates are compared with each other."""
        return self.relevance_weight is not None or self.duplicate_similarity is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What to look for, where, and how deep."""

    parts: Sequence[QueryPart]
    index_id: str
    target_modality: Modality
    depth: Depth
    is_reranked: bool = True
    is_content_included: bool = False
    where: Filter | None = None
    """What the items' attributes must be; None finds all."""
    consistency_tokens: Sequence[str] = ()
    """Of writes that the search must see."""
    is_full_coverage_required: bool = False
    are_all_modalities_included: bool = False
    ranking: RankingRule = RankingRule()
    is_explained: bool = False
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR
    is_rerank_required: bool = False
    is_depth_adaptive: bool = False
