"""Defines queries: what to search for, and how to rank it.

A `SearchQuery` is checked when it is made, so a client, a service and an engine refuse the same.
"""

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from typing_extensions import Self

from tandem.contract.content import Content, Modality, TextContent, TruncationPolicy
from tandem.contract.filtering.attribute_wire import CheckedFilter
from tandem.contract.filtering.filters import Filter
from tandem.contract.fusion import FusionMethod, HybridFusion
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_KEYWORDS_BYTES, MAX_RERANK_K, MAX_RETRIEVE_K, check_k
from tandem.errors import QueryInvalid, RankingInvalid, TruncationPolicyInvalid

if TYPE_CHECKING:
    from tandem.v1 import content_pb2

MAX_PART_COUNT = 16
_WEIGHTLESS = (None, FusionMethod.CROSS_ENCODER)


class SearchOptions(TypedDict, total=False):
    """Options of a search; the server has a default for each."""

    target_modality: Annotated[
        Modality | str | None,
        "Modality to find; by default images for a text and texts for an image",
    ]
    all_modalities_included: Annotated[
        bool, "Find both modalities, and interleave their rankings, the target first"
    ]
    retrieve_k: Annotated[int | None, "Number of items that the bi-encoder retrieves"]
    rerank_k: Annotated[int | None, "Number of those that the cross-encoder reranks"]
    return_n: Annotated[int | None, "Number of items returned"]
    rerank_disabled: Annotated[bool, "Keep bi-encoder order: no cross-encoder"]
    rerank_required: Annotated[bool, "Fail unless all of rerank_k were reranked: RerankUnavailable"]
    adaptive_depth: Annotated[
        bool, "Stop reranking, before rerank_k, once the first item is unlikely to change"
    ]
    neighbours_enabled: Annotated[
        bool, "Reorder the first items by their neighbours, if a neighbour model (LeaPRR) is served"
    ]
    neighbours_required: Annotated[
        bool, "Fail unless that is done with the items of all shards: NeighboursUnavailable"
    ]
    hybrid: Annotated[
        bool, "Find items by words too, and fuse both lists; the next three options imply it"
    ]
    keywords: Annotated[str | None, "Words of a hybrid search; by default the query's texts"]
    hybrid_fusion: Annotated[
        HybridFusion | str | None, "How to fuse both lists; by default RECIPROCAL_RANK"
    ]
    keyword_weight: Annotated[
        float | None, "Weight of the items that the words found, 0 to 1; by default 0.5"
    ]
    fusion: Annotated[
        FusionMethod | str | None,
        "How to combine the scores of both models; by default the cross-encoder's alone",
    ]
    cross_encoder_weight: Annotated[
        float | None, "Weight of the cross-encoder in ADD, NORMALISED_ADD and LOGIT_ADD, 0 to 1"
    ]
    min_probability: Annotated[
        float | None, "Leave out items with a lower match probability, and unscored ones"
    ]
    max_false_answer_rate: Annotated[
        float | None,
        "Leave out items that a query without an answer may find, so that at most this share of "
        "such queries gets any",
    ]
    relevance_weight: Annotated[
        float | None, "Lambda of maximal marginal relevance: 1 is relevance only, 0 diversity only"
    ]
    duplicate_similarity: Annotated[
        float | None, "Keep only the best of items that are at least this similar"
    ]
    explained: Annotated[bool, "Return an explanation of each item's rank"]
    truncation_policy: Annotated[
        TruncationPolicy | str | None,
        "What to do with a text over the model's limit; by default it is refused",
    ]
    content_included: Annotated[bool, "Return the items' contents and attributes"]
    attributes_included: Annotated[bool, "Return the items' attributes, without their contents"]
    where: Annotated[
        Filter | str | None,
        'Find only items that match: a filter, or its text, such as "style = noto"',
    ]
    consistency_tokens: Annotated[
        Iterable[str], "Tokens of earlier writes that the search must see"
    ]
    full_coverage_required: Annotated[bool, "Fail if a shard does not answer: ShardsMissing"]


def as_sent(number: float) -> float:
    """Returns the number in the precision of a message, so that every road gives equal scores."""
    return ctypes.c_float(number).value


def _check(name: str, value: float | None, low: float) -> None:
    # `not low <= value`, since `value < low` would accept NaN.
    if value is not None and not low <= value <= 1.0:
        raise RankingInvalid(why=f"{name} is {value:g}; set {low:g} to 1")


# The paper's best trade-off of accuracy and time (Geigle et al. 2022, section 6).
_DEFAULT_RERANK_K = 20
_DEFAULT_RETURN_N = 10


@dataclass(frozen=True, slots=True)
class Depth:
    """Holds how many items are retrieved, how many of them reranked, and how many returned."""

    retrieve_k: int
    rerank_k: int
    return_n: int

    @classmethod
    def of(cls, retrieve_k: int | None, rerank_k: int | None, return_n: int | None) -> Self:
        """Returns the depth with defaults for None; raises KOutOfRange, naming the field."""
        _check_count("retrieve_k", retrieve_k, MAX_RETRIEVE_K)
        _check_count("rerank_k", rerank_k, MAX_RERANK_K)
        _check_count("return_n", return_n, MAX_RETRIEVE_K)
        retrieve = retrieve_k or max(_DEFAULT_RERANK_K, rerank_k or 0, return_n or 0)
        _check_count("rerank_k", rerank_k, retrieve)
        _check_count("return_n", return_n, retrieve)
        return cls(
            retrieve,
            rerank_k or min(_DEFAULT_RERANK_K, retrieve),
            return_n or min(_DEFAULT_RETURN_N, retrieve),
        )


def _check_count(name: str, value: int | None, high: int) -> None:
    if value is not None:
        check_k(name, value, high)


@dataclass(frozen=True, slots=True)
class StoredItem:
    """A query by an item of the searched index.

    Raises ItemIdInvalid.
    """

    item_id: str

    def __post_init__(self) -> None:
        check_item_id(self.item_id)


@dataclass(frozen=True, slots=True)
class GivenEncoding:
    """A query by an encoding that the caller supplies."""

    embedding: Sequence[float]
    """A unit-length vector."""
    model_fingerprint: str
    """The fingerprint of the model that made it."""
    modality: Modality
    """The modality of the encoded content."""
    tokens: "content_pb2.ContentTokens | None" = None
    """Tokens from EncodeContents; without them nothing is reranked."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPart:
    """Weighs one part of a query; a negative weight moves the query away from it."""

    source: Content | StoredItem | GivenEncoding
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", as_sent(self.weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRule:
    """States how scores make the order, and which items are left out of it.

    Raises RankingInvalid for a number that is out of range, or has no use.
    """

    fusion: FusionMethod | None = None
    """None is the method of the model's authors; without one, CROSS_ENCODER."""
    cross_encoder_weight: float | None = None
    """0 to 1; for the sums only, where None is 0.5."""
    min_probability: float | None = None
    max_false_answer_rate: float | None = None
    """Above 0 and below 1; None leaves nothing out."""
    relevance_weight: float | None = None
    """Of maximal marginal relevance: 1 is relevance only, 0 diversity only; None skips it."""
    duplicate_similarity: float | None = None
    """Only the best of items at least this similar stays; None keeps all."""

    def __post_init__(self) -> None:
        _check("cross_encoder_weight", self.cross_encoder_weight, 0.0)
        _check("min_probability", self.min_probability, 0.0)
        _check("relevance_weight", self.relevance_weight, 0.0)
        _check("duplicate_similarity", self.duplicate_similarity, -1.0)
        rate = self.max_false_answer_rate
        if rate is not None and not 0.0 < rate < 1.0:
            raise RankingInvalid(
                why=f"max_false_answer_rate is {rate:g}; set more than 0 and less than 1"
            )
        if self.cross_encoder_weight is not None and self.fusion in _WEIGHTLESS:
            raise RankingInvalid(
                why="cross_encoder_weight applies only to the fusion methods ADD, NORMALISED_ADD "
                "and LOGIT_ADD; drop it, or choose one of them"
            )

    def by_default(self, method: FusionMethod | None) -> "RankingRule":
        """Returns the rule with the method of the model's authors."""
        if method is FusionMethod.LOGIT_ADD:
            # BLIP's authors add the similarity to one of two logits, whose difference ours is.
            return replace(self, fusion=method, cross_encoder_weight=1 / 3)
        return replace(self, fusion=method)

    @property
    def are_embeddings_needed(self) -> bool:
        """Whether candidates are compared with each other."""
        return self.relevance_weight is not None or self.duplicate_similarity is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridRule:
    """States which words find items too, and how both lists are fused.

    Raises QueryInvalid for no words or too many, RankingInvalid for a weight that is out of range.
    """

    keywords: str
    fusion: HybridFusion = HybridFusion.RECIPROCAL_RANK
    keyword_weight: float = 0.5
    """0 to 1; the nearest items have the rest."""

    def __post_init__(self) -> None:
        _check("keyword_weight", self.keyword_weight, 0.0)
        if len(self.keywords.encode()) > MAX_KEYWORDS_BYTES:
            raise QueryInvalid(
                why=f"keywords have more than {MAX_KEYWORDS_BYTES:,} bytes; send fewer"
            )
        if not self.keywords:
            raise QueryInvalid(
                why="hybrid needs keywords, since no part of the query is a text; send some"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Describes one search; field names are the contract's.

    Raises IndexIdInvalid, QueryInvalid, TruncationPolicyInvalid, and RankingInvalid for options
    that contradict each other.
    """

    parts: Sequence[WeightedPart]
    index_id: str
    target_modality: Modality
    depth: Depth
    rerank_disabled: bool = False
    content_included: bool = False
    attributes_included: bool = False
    filter: CheckedFilter | None = None
    """A condition on the items' attributes; None finds all."""
    consistency_tokens: Sequence[str] = ()
    """Of the writes that the search must see."""
    full_coverage_required: bool = False
    all_modalities_included: bool = False
    ranking: RankingRule = RankingRule()
    explained: bool = False
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR
    rerank_required: bool = False
    adaptive_depth: bool = False
    neighbours_enabled: bool = False
    neighbours_required: bool = False
    hybrid: HybridRule | None = None
    """None finds by embeddings alone."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        _check_parts(self.parts, self.truncation_policy)
        if self.rerank_disabled:
            for name, is_set in {
                "fusion": self.ranking.fusion not in _WEIGHTLESS,
                "min_probability": self.ranking.min_probability is not None,
                "rerank_required": self.rerank_required,
            }.items():
                if is_set:
                    raise RankingInvalid(
                        why=f"{name} needs a rerank; drop it, or drop rerank_disabled"
                    )
        if self.ranking.max_false_answer_rate is not None and (
            len(self.parts) > 1
            or self.parts[0].weight <= 0
            or self.all_modalities_included
            or self.truncation_policy is TruncationPolicy.BEST_WINDOW
        ):
            raise RankingInvalid(
                why="max_false_answer_rate compares with the scores of queries of one part in one "
                "direction; drop it, or the other parts, all_modalities_included and BEST_WINDOW"
            )
        if self.neighbours_required and not self.neighbours_enabled:
            raise RankingInvalid(
                why="neighbours_required needs neighbours_enabled; set it, or drop "
                "neighbours_required"
            )
        if self.hybrid is not None and self.adaptive_depth:
            raise RankingInvalid(
                why="adaptive_depth was fitted to bi-encoder order; drop it, or drop hybrid"
            )

    @classmethod
    def of(
        cls,
        parts: Sequence[WeightedPart],
        *,
        index_id: str,
        where: CheckedFilter | None = None,
        options: Mapping[str, Any],
    ) -> Self:
        """Returns the query for the values of SearchOptions, of which a missing one is a default.

        Raises IndexIdInvalid, QueryInvalid, KOutOfRange and RankingInvalid.
        """
        return cls(
            parts=parts,
            index_id=index_id,
            target_modality=options.get("target_modality") or _usual_target(parts),
            depth=Depth.of(*(options.get(name) for name in ("retrieve_k", "rerank_k", "return_n"))),
            filter=where,
            consistency_tokens=options.get("consistency_tokens", ()),
            ranking=_ranking(options),
            truncation_policy=options.get("truncation_policy") or TruncationPolicy.ERROR,
            hybrid=_hybrid(options, parts),
            **{name: options.get(name, False) for name in FLAGS},
        )

    @property
    def modalities(self) -> Sequence[Modality]:
        """The modalities to search for, the target first."""
        if self.all_modalities_included:
            return (self.target_modality, self.target_modality.other)
        return (self.target_modality,)

    @property
    def is_usual_target(self) -> bool:
        """Whether the target is what the parts find by default."""
        return _modalities(self.parts) == {self.target_modality.other}

    @property
    def as_retrieved(self) -> "SearchQuery":
        """The same query without what needs the cross-encoder."""
        ranking = replace(
            self.ranking,
            fusion=FusionMethod.CROSS_ENCODER,
            cross_encoder_weight=None,
            min_probability=None,
        )
        return replace(self, ranking=ranking)


def _check_part_count(count: int) -> None:
    if not 1 <= count <= MAX_PART_COUNT:
        raise QueryInvalid(why=f"it has {count:,} parts; send 1 to {MAX_PART_COUNT}")


def _check_parts(parts: Sequence[WeightedPart], policy: TruncationPolicy) -> None:
    _check_part_count(len(parts))
    if not all(math.isfinite(part.weight) for part in parts):
        raise QueryInvalid(why="a part's weight is not finite; send a number")
    if (
        policy is TruncationPolicy.BEST_WINDOW
        and (len(parts) > 1 or parts[0].weight < 0)
        and any(isinstance(part.source, TextContent) for part in parts)
    ):
        raise TruncationPolicyInvalid(
            policy=policy.value,
            why="BEST_WINDOW requires a query with exactly one text part of positive weight; "
            "send that, or another policy",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """Asks for the items after those of an earlier answer."""

    cursor: bytes
    index_id: str
    return_n: int | None = None
    """None is that of the search."""
    content_included: bool = False
    attributes_included: bool = False


FLAGS = tuple(each.name for each in fields(SearchQuery) if each.type is bool)
"""The options that a query has under the same name."""


def _usual_target(parts: Sequence[WeightedPart]) -> Modality:
    """Returns the default target: the modality that the parts do not have."""
    _check_part_count(len(parts))
    modalities = _modalities(parts)
    if len(modalities) != 1:
        raise QueryInvalid(
            why="query_parts of both modalities, or of stored items, do not say what to find: set "
            "target_modality (tandem search --target-modality)"
        )
    return modalities.pop().other


def _modalities(parts: Sequence[WeightedPart]) -> set[Modality]:
    return {part.source.modality for part in parts if not isinstance(part.source, StoredItem)}


def _ranking(options: Mapping[str, Any]) -> RankingRule:
    numbers = (
        "cross_encoder_weight",
        "min_probability",
        "relevance_weight",
        "duplicate_similarity",
    )
    return RankingRule(
        fusion=options.get("fusion"),
        max_false_answer_rate=options.get("max_false_answer_rate"),
        **_as_sent(options, *numbers),
    )


def _hybrid(options: Mapping[str, Any], parts: Sequence[WeightedPart]) -> HybridRule | None:
    """Returns the rule if an option asks for words; a query text's first words are the default."""
    keywords, fusion = options.get("keywords"), options.get("hybrid_fusion")
    weight = _as_sent(options, "keyword_weight")
    if keywords is None and fusion is None and not weight and not options.get("hybrid"):
        return None
    texts = (
        part.source.text
        for part in parts
        if isinstance(part.source, TextContent) and part.weight > 0
    )
    usual = " ".join(texts).encode()[:MAX_KEYWORDS_BYTES].decode(errors="ignore")
    return HybridRule(
        keywords=keywords or usual, fusion=fusion or HybridFusion.RECIPROCAL_RANK, **weight
    )


def _as_sent(options: Mapping[str, Any], *names: str) -> dict[str, float]:
    return {name: as_sent(options[name]) for name in names if options.get(name) is not None}
