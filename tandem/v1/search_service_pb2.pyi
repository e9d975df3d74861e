import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import attribute_pb2 as _attribute_pb2
from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import cost_pb2 as _cost_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from tandem.v1 import index_service_pb2 as _index_service_pb2
from tandem.v1 import score_calibration_pb2 as _score_calibration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HybridFusion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HYBRID_FUSION_UNSPECIFIED: _ClassVar[HybridFusion]
    HYBRID_FUSION_RECIPROCAL_RANK: _ClassVar[HybridFusion]
    HYBRID_FUSION_Z_SCORE: _ClassVar[HybridFusion]
    HYBRID_FUSION_DISTRIBUTION: _ClassVar[HybridFusion]

class FusionMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FUSION_METHOD_UNSPECIFIED: _ClassVar[FusionMethod]
    FUSION_METHOD_CROSS_ENCODER: _ClassVar[FusionMethod]
    FUSION_METHOD_ADD: _ClassVar[FusionMethod]
    FUSION_METHOD_NORMALISED_ADD: _ClassVar[FusionMethod]
    FUSION_METHOD_LOGIT_ADD: _ClassVar[FusionMethod]

class SearchPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_PHASE_UNSPECIFIED: _ClassVar[SearchPhase]
    SEARCH_PHASE_RETRIEVED: _ClassVar[SearchPhase]
    SEARCH_PHASE_FINAL: _ClassVar[SearchPhase]

class RerankStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RERANK_STOP_UNSPECIFIED: _ClassVar[RerankStop]
    RERANK_STOP_COMPLETE: _ClassVar[RerankStop]
    RERANK_STOP_DISABLED: _ClassVar[RerankStop]
    RERANK_STOP_NOT_APPLICABLE: _ClassVar[RerankStop]
    RERANK_STOP_TIME: _ClassVar[RerankStop]
    RERANK_STOP_ADAPTIVE: _ClassVar[RerankStop]
    RERANK_STOP_UNAVAILABLE: _ClassVar[RerankStop]
    RERANK_STOP_OUTPUT_INVALID: _ClassVar[RerankStop]
    RERANK_STOP_OVERLOADED: _ClassVar[RerankStop]

class NeighbourStop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NEIGHBOUR_STOP_UNSPECIFIED: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_COMPLETE: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_NOT_SERVED: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_NOT_APPLICABLE: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_MODEL_MISMATCH: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_TOO_FEW_ITEMS: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_TIME: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_UNAVAILABLE: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_OUTPUT_INVALID: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_OVERLOADED: _ClassVar[NeighbourStop]
    NEIGHBOUR_STOP_RERANK_MISMATCH: _ClassVar[NeighbourStop]

class OrderingStage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORDERING_STAGE_UNSPECIFIED: _ClassVar[OrderingStage]
    ORDERING_STAGE_RETRIEVE: _ClassVar[OrderingStage]
    ORDERING_STAGE_RERANK: _ClassVar[OrderingStage]
    ORDERING_STAGE_NEIGHBOURS: _ClassVar[OrderingStage]

class Degradation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEGRADATION_UNSPECIFIED: _ClassVar[Degradation]
    DEGRADATION_RERANK_SKIPPED: _ClassVar[Degradation]
    DEGRADATION_RERANK_PARTIAL: _ClassVar[Degradation]
    DEGRADATION_SHARDS_MISSING: _ClassVar[Degradation]
    DEGRADATION_TOKENS_MISSING: _ClassVar[Degradation]
    DEGRADATION_EMBEDDING_CACHED: _ClassVar[Degradation]
    DEGRADATION_SHARD_REBUILDING: _ClassVar[Degradation]
    DEGRADATION_NEIGHBOURS_SKIPPED: _ClassVar[Degradation]
    DEGRADATION_NEIGHBOURS_PARTIAL: _ClassVar[Degradation]
    DEGRADATION_KEYWORDS_SKIPPED: _ClassVar[Degradation]
    DEGRADATION_KEYWORDS_PARTIAL: _ClassVar[Degradation]
HYBRID_FUSION_UNSPECIFIED: HybridFusion
HYBRID_FUSION_RECIPROCAL_RANK: HybridFusion
HYBRID_FUSION_Z_SCORE: HybridFusion
HYBRID_FUSION_DISTRIBUTION: HybridFusion
FUSION_METHOD_UNSPECIFIED: FusionMethod
FUSION_METHOD_CROSS_ENCODER: FusionMethod
FUSION_METHOD_ADD: FusionMethod
FUSION_METHOD_NORMALISED_ADD: FusionMethod
FUSION_METHOD_LOGIT_ADD: FusionMethod
SEARCH_PHASE_UNSPECIFIED: SearchPhase
SEARCH_PHASE_RETRIEVED: SearchPhase
SEARCH_PHASE_FINAL: SearchPhase
RERANK_STOP_UNSPECIFIED: RerankStop
RERANK_STOP_COMPLETE: RerankStop
RERANK_STOP_DISABLED: RerankStop
RERANK_STOP_NOT_APPLICABLE: RerankStop
RERANK_STOP_TIME: RerankStop
RERANK_STOP_ADAPTIVE: RerankStop
RERANK_STOP_UNAVAILABLE: RerankStop
RERANK_STOP_OUTPUT_INVALID: RerankStop
RERANK_STOP_OVERLOADED: RerankStop
NEIGHBOUR_STOP_UNSPECIFIED: NeighbourStop
NEIGHBOUR_STOP_COMPLETE: NeighbourStop
NEIGHBOUR_STOP_NOT_SERVED: NeighbourStop
NEIGHBOUR_STOP_NOT_APPLICABLE: NeighbourStop
NEIGHBOUR_STOP_MODEL_MISMATCH: NeighbourStop
NEIGHBOUR_STOP_TOO_FEW_ITEMS: NeighbourStop
NEIGHBOUR_STOP_TIME: NeighbourStop
NEIGHBOUR_STOP_UNAVAILABLE: NeighbourStop
NEIGHBOUR_STOP_OUTPUT_INVALID: NeighbourStop
NEIGHBOUR_STOP_OVERLOADED: NeighbourStop
NEIGHBOUR_STOP_RERANK_MISMATCH: NeighbourStop
ORDERING_STAGE_UNSPECIFIED: OrderingStage
ORDERING_STAGE_RETRIEVE: OrderingStage
ORDERING_STAGE_RERANK: OrderingStage
ORDERING_STAGE_NEIGHBOURS: OrderingStage
DEGRADATION_UNSPECIFIED: Degradation
DEGRADATION_RERANK_SKIPPED: Degradation
DEGRADATION_RERANK_PARTIAL: Degradation
DEGRADATION_SHARDS_MISSING: Degradation
DEGRADATION_TOKENS_MISSING: Degradation
DEGRADATION_EMBEDDING_CACHED: Degradation
DEGRADATION_SHARD_REBUILDING: Degradation
DEGRADATION_NEIGHBOURS_SKIPPED: Degradation
DEGRADATION_NEIGHBOURS_PARTIAL: Degradation
DEGRADATION_KEYWORDS_SKIPPED: Degradation
DEGRADATION_KEYWORDS_PARTIAL: Degradation

class SearchItemsRequest(_message.Message):
    __slots__ = ("query", "index_id", "target_modality", "retrieve_k", "rerank_k", "return_n", "rerank_disabled", "content_included", "filter", "consistency_tokens", "full_coverage_required", "query_parts", "all_modalities_included", "fusion", "min_probability", "diversity", "explained", "truncation_policy", "rerank_required", "adaptive_depth", "cursor", "filter_text", "neighbours_enabled", "neighbours_required", "hybrid", "attributes_included", "max_false_answer_rate")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODALITY_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_K_FIELD_NUMBER: _ClassVar[int]
    RERANK_K_FIELD_NUMBER: _ClassVar[int]
    RETURN_N_FIELD_NUMBER: _ClassVar[int]
    RERANK_DISABLED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FULL_COVERAGE_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    QUERY_PARTS_FIELD_NUMBER: _ClassVar[int]
    ALL_MODALITIES_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    MIN_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    DIVERSITY_FIELD_NUMBER: _ClassVar[int]
    EXPLAINED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    RERANK_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_DEPTH_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FILTER_TEXT_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_ENABLED_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    HYBRID_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    MAX_FALSE_ANSWER_RATE_FIELD_NUMBER: _ClassVar[int]
    query: _content_pb2.Content
    index_id: str
    target_modality: _content_pb2.Modality
    retrieve_k: int
    rerank_k: int
    return_n: int
    rerank_disabled: bool
    content_included: bool
    filter: _attribute_pb2.Filter
    consistency_tokens: _containers.RepeatedScalarFieldContainer[str]
    full_coverage_required: bool
    query_parts: _containers.RepeatedCompositeFieldContainer[QueryPart]
    all_modalities_included: bool
    fusion: Fusion
    min_probability: float
    diversity: Diversity
    explained: bool
    truncation_policy: _content_pb2.TruncationPolicy
    rerank_required: bool
    adaptive_depth: bool
    cursor: bytes
    filter_text: str
    neighbours_enabled: bool
    neighbours_required: bool
    hybrid: HybridSearch
    attributes_included: bool
    max_false_answer_rate: float
    def __init__(self, query: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., index_id: _Optional[str] = ..., target_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., retrieve_k: _Optional[int] = ..., rerank_k: _Optional[int] = ..., return_n: _Optional[int] = ..., rerank_disabled: _Optional[bool] = ..., content_included: _Optional[bool] = ..., filter: _Optional[_Union[_attribute_pb2.Filter, _Mapping]] = ..., consistency_tokens: _Optional[_Iterable[str]] = ..., full_coverage_required: _Optional[bool] = ..., query_parts: _Optional[_Iterable[_Union[QueryPart, _Mapping]]] = ..., all_modalities_included: _Optional[bool] = ..., fusion: _Optional[_Union[Fusion, _Mapping]] = ..., min_probability: _Optional[float] = ..., diversity: _Optional[_Union[Diversity, _Mapping]] = ..., explained: _Optional[bool] = ..., truncation_policy: _Optional[_Union[_content_pb2.TruncationPolicy, str]] = ..., rerank_required: _Optional[bool] = ..., adaptive_depth: _Optional[bool] = ..., cursor: _Optional[bytes] = ..., filter_text: _Optional[str] = ..., neighbours_enabled: _Optional[bool] = ..., neighbours_required: _Optional[bool] = ..., hybrid: _Optional[_Union[HybridSearch, _Mapping]] = ..., attributes_included: _Optional[bool] = ..., max_false_answer_rate: _Optional[float] = ...) -> None: ...

class HybridSearch(_message.Message):
    __slots__ = ("keywords", "fusion", "keyword_weight")
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    keywords: str
    fusion: HybridFusion
    keyword_weight: float
    def __init__(self, keywords: _Optional[str] = ..., fusion: _Optional[_Union[HybridFusion, str]] = ..., keyword_weight: _Optional[float] = ...) -> None: ...

class QueryPart(_message.Message):
    __slots__ = ("content", "item_id", "encoding", "weight")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    content: _content_pb2.Content
    item_id: str
    encoding: GivenEncoding
    weight: float
    def __init__(self, content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., item_id: _Optional[str] = ..., encoding: _Optional[_Union[GivenEncoding, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class GivenEncoding(_message.Message):
    __slots__ = ("embedding", "model_fingerprint", "modality", "tokens")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    model_fingerprint: str
    modality: _content_pb2.Modality
    tokens: _content_pb2.ContentTokens
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., model_fingerprint: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., tokens: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ...) -> None: ...

class Fusion(_message.Message):
    __slots__ = ("method", "cross_encoder_weight")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CROSS_ENCODER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    method: FusionMethod
    cross_encoder_weight: float
    def __init__(self, method: _Optional[_Union[FusionMethod, str]] = ..., cross_encoder_weight: _Optional[float] = ...) -> None: ...

class Diversity(_message.Message):
    __slots__ = ("relevance_weight", "duplicate_similarity")
    RELEVANCE_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    relevance_weight: float
    duplicate_similarity: float
    def __init__(self, relevance_weight: _Optional[float] = ..., duplicate_similarity: _Optional[float] = ...) -> None: ...

class SearchItemsResponse(_message.Message):
    __slots__ = ("items", "model_fingerprint", "durations", "coverage", "rerank", "degradations", "text_uses", "cost", "next_cursor", "model_version", "retrievals", "neighbours", "abstention")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DURATIONS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    RERANK_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    TEXT_USES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RETRIEVALS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    ABSTENTION_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RankedItem]
    model_fingerprint: str
    durations: StageDurations
    coverage: Coverage
    rerank: RerankSummary
    degradations: _containers.RepeatedScalarFieldContainer[Degradation]
    text_uses: _containers.RepeatedCompositeFieldContainer[_content_pb2.TextUse]
    cost: _cost_pb2.InferenceCost
    next_cursor: bytes
    model_version: int
    retrievals: _containers.RepeatedCompositeFieldContainer[ShardRetrieval]
    neighbours: NeighbourSummary
    abstention: Abstention
    def __init__(self, items: _Optional[_Iterable[_Union[RankedItem, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., durations: _Optional[_Union[StageDurations, _Mapping]] = ..., coverage: _Optional[_Union[Coverage, _Mapping]] = ..., rerank: _Optional[_Union[RerankSummary, _Mapping]] = ..., degradations: _Optional[_Iterable[_Union[Degradation, str]]] = ..., text_uses: _Optional[_Iterable[_Union[_content_pb2.TextUse, _Mapping]]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., next_cursor: _Optional[bytes] = ..., model_version: _Optional[int] = ..., retrievals: _Optional[_Iterable[_Union[ShardRetrieval, _Mapping]]] = ..., neighbours: _Optional[_Union[NeighbourSummary, _Mapping]] = ..., abstention: _Optional[_Union[Abstention, _Mapping]] = ...) -> None: ...

class Abstention(_message.Message):
    __slots__ = ("abstained", "max_false_answer_rate", "scorer", "threshold", "null_score_count")
    ABSTAINED_FIELD_NUMBER: _ClassVar[int]
    MAX_FALSE_ANSWER_RATE_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NULL_SCORE_COUNT_FIELD_NUMBER: _ClassVar[int]
    abstained: bool
    max_false_answer_rate: float
    scorer: str
    threshold: float
    null_score_count: int
    def __init__(self, abstained: _Optional[bool] = ..., max_false_answer_rate: _Optional[float] = ..., scorer: _Optional[str] = ..., threshold: _Optional[float] = ..., null_score_count: _Optional[int] = ...) -> None: ...

class ShardRetrieval(_message.Message):
    __slots__ = ("shard_number", "modality", "path", "item_count", "keyword_state")
    SHARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_STATE_FIELD_NUMBER: _ClassVar[int]
    shard_number: int
    modality: _content_pb2.Modality
    path: _index_service_pb2.SearchPath
    item_count: int
    keyword_state: _index_service_pb2.KeywordState
    def __init__(self, shard_number: _Optional[int] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., path: _Optional[_Union[_index_service_pb2.SearchPath, _Mapping]] = ..., item_count: _Optional[int] = ..., keyword_state: _Optional[_Union[_index_service_pb2.KeywordState, str]] = ...) -> None: ...

class StreamSearchItemsRequest(_message.Message):
    __slots__ = ("search",)
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    search: SearchItemsRequest
    def __init__(self, search: _Optional[_Union[SearchItemsRequest, _Mapping]] = ...) -> None: ...

class StreamSearchItemsResponse(_message.Message):
    __slots__ = ("phase", "answer")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    phase: SearchPhase
    answer: SearchItemsResponse
    def __init__(self, phase: _Optional[_Union[SearchPhase, str]] = ..., answer: _Optional[_Union[SearchItemsResponse, _Mapping]] = ...) -> None: ...

class RerankSummary(_message.Message):
    __slots__ = ("reranked_depth", "stop", "missing_count", "reranker", "probability_withheld")
    RERANKED_DEPTH_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    MISSING_COUNT_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    reranked_depth: int
    stop: RerankStop
    missing_count: int
    reranker: str
    probability_withheld: _error_reason_pb2.ErrorReason
    def __init__(self, reranked_depth: _Optional[int] = ..., stop: _Optional[_Union[RerankStop, str]] = ..., missing_count: _Optional[int] = ..., reranker: _Optional[str] = ..., probability_withheld: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ...) -> None: ...

class NeighbourSummary(_message.Message):
    __slots__ = ("scored_count", "stop", "neighbour_model", "missing_shards")
    SCORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_MODEL_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHARDS_FIELD_NUMBER: _ClassVar[int]
    scored_count: int
    stop: NeighbourStop
    neighbour_model: str
    missing_shards: _containers.RepeatedCompositeFieldContainer[MissingShard]
    def __init__(self, scored_count: _Optional[int] = ..., stop: _Optional[_Union[NeighbourStop, str]] = ..., neighbour_model: _Optional[str] = ..., missing_shards: _Optional[_Iterable[_Union[MissingShard, _Mapping]]] = ...) -> None: ...

class Coverage(_message.Message):
    __slots__ = ("answered_shard_count", "shard_count", "covered_item_count", "item_count", "missing_shards")
    ANSWERED_SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    COVERED_ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHARDS_FIELD_NUMBER: _ClassVar[int]
    answered_shard_count: int
    shard_count: int
    covered_item_count: int
    item_count: int
    missing_shards: _containers.RepeatedCompositeFieldContainer[MissingShard]
    def __init__(self, answered_shard_count: _Optional[int] = ..., shard_count: _Optional[int] = ..., covered_item_count: _Optional[int] = ..., item_count: _Optional[int] = ..., missing_shards: _Optional[_Iterable[_Union[MissingShard, _Mapping]]] = ...) -> None: ...

class MissingShard(_message.Message):
    __slots__ = ("shard_number", "reason")
    SHARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    shard_number: int
    reason: _error_reason_pb2.ErrorReason
    def __init__(self, shard_number: _Optional[int] = ..., reason: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ...) -> None: ...

class RankedItem(_message.Message):
    __slots__ = ("item_id", "similarity", "match_logit", "match_probability", "retrieve_rank", "final_rank", "content", "attributes", "modality", "score", "explanation", "neighbour_score", "ordered_by", "hybrid")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _attribute_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_attribute_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    MATCH_LOGIT_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_RANK_FIELD_NUMBER: _ClassVar[int]
    FINAL_RANK_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_SCORE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_BY_FIELD_NUMBER: _ClassVar[int]
    HYBRID_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    similarity: float
    match_logit: float
    match_probability: float
    retrieve_rank: int
    final_rank: int
    content: _content_pb2.Content
    attributes: _containers.MessageMap[str, _attribute_pb2.AttributeValue]
    modality: _content_pb2.Modality
    score: float
    explanation: Explanation
    neighbour_score: float
    ordered_by: OrderingStage
    hybrid: HybridRank
    def __init__(self, item_id: _Optional[str] = ..., similarity: _Optional[float] = ..., match_logit: _Optional[float] = ..., match_probability: _Optional[float] = ..., retrieve_rank: _Optional[int] = ..., final_rank: _Optional[int] = ..., content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., attributes: _Optional[_Mapping[str, _attribute_pb2.AttributeValue]] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., score: _Optional[float] = ..., explanation: _Optional[_Union[Explanation, _Mapping]] = ..., neighbour_score: _Optional[float] = ..., ordered_by: _Optional[_Union[OrderingStage, str]] = ..., hybrid: _Optional[_Union[HybridRank, _Mapping]] = ...) -> None: ...

class HybridRank(_message.Message):
    __slots__ = ("similarity_rank", "keyword_rank", "keyword_score", "fused_score")
    SIMILARITY_RANK_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_RANK_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_SCORE_FIELD_NUMBER: _ClassVar[int]
    FUSED_SCORE_FIELD_NUMBER: _ClassVar[int]
    similarity_rank: int
    keyword_rank: int
    keyword_score: float
    fused_score: float
    def __init__(self, similarity_rank: _Optional[int] = ..., keyword_rank: _Optional[int] = ..., keyword_score: _Optional[float] = ..., fused_score: _Optional[float] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("terms", "ranks")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    terms: _containers.RepeatedCompositeFieldContainer[ScoreTerm]
    ranks: _containers.RepeatedCompositeFieldContainer[StageRank]
    def __init__(self, terms: _Optional[_Iterable[_Union[ScoreTerm, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[StageRank, _Mapping]]] = ...) -> None: ...

class ScoreTerm(_message.Message):
    __slots__ = ("name", "value", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    weight: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., weight: _Optional[float] = ...) -> None: ...

class StageRank(_message.Message):
    __slots__ = ("stage", "rank")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    stage: str
    rank: int
    def __init__(self, stage: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class BatchSearchItemsRequest(_message.Message):
    __slots__ = ("searches",)
    SEARCHES_FIELD_NUMBER: _ClassVar[int]
    searches: _containers.RepeatedCompositeFieldContainer[SearchItemsRequest]
    def __init__(self, searches: _Optional[_Iterable[_Union[SearchItemsRequest, _Mapping]]] = ...) -> None: ...

class BatchSearchItemsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[BatchSearchResult]
    def __init__(self, results: _Optional[_Iterable[_Union[BatchSearchResult, _Mapping]]] = ...) -> None: ...

class BatchSearchResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: SearchItemsResponse
    error: _error_reason_pb2.ItemError
    def __init__(self, response: _Optional[_Union[SearchItemsResponse, _Mapping]] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class StageDurations(_message.Message):
    __slots__ = ("encode_duration", "retrieve_duration", "rerank_duration", "fetch_duration", "total_duration", "rank_duration", "neighbours_duration")
    ENCODE_DURATION_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_DURATION_FIELD_NUMBER: _ClassVar[int]
    RERANK_DURATION_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DURATION_FIELD_NUMBER: _ClassVar[int]
    RANK_DURATION_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_DURATION_FIELD_NUMBER: _ClassVar[int]
    encode_duration: _duration_pb2.Duration
    retrieve_duration: _duration_pb2.Duration
    rerank_duration: _duration_pb2.Duration
    fetch_duration: _duration_pb2.Duration
    total_duration: _duration_pb2.Duration
    rank_duration: _duration_pb2.Duration
    neighbours_duration: _duration_pb2.Duration
    def __init__(self, encode_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retrieve_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rerank_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rank_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., neighbours_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class IngestItemsRequest(_message.Message):
    __slots__ = ("index_id", "items", "request_id", "truncation_policy")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    items: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.Item]
    request_id: str
    truncation_policy: _content_pb2.TruncationPolicy
    def __init__(self, index_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[_index_service_pb2.Item, _Mapping]]] = ..., request_id: _Optional[str] = ..., truncation_policy: _Optional[_Union[_content_pb2.TruncationPolicy, str]] = ...) -> None: ...

class IngestItemsResponse(_message.Message):
    __slots__ = ("results", "consistency_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[IngestResult]
    consistency_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[IngestResult, _Mapping]]] = ..., consistency_token: _Optional[str] = ...) -> None: ...

class IngestResult(_message.Message):
    __slots__ = ("item_id", "error", "text_use")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_USE_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    error: _error_reason_pb2.ItemError
    text_use: _content_pb2.TextUse
    def __init__(self, item_id: _Optional[str] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ..., text_use: _Optional[_Union[_content_pb2.TextUse, _Mapping]] = ...) -> None: ...

class ChangeItemsRequest(_message.Message):
    __slots__ = ("index_id", "patches", "selection", "request_id", "dry_run", "page_token", "consistency_token")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    PATCHES_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    patches: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.ItemPatch]
    selection: _index_service_pb2.ItemSelection
    request_id: str
    dry_run: bool
    page_token: str
    consistency_token: str
    def __init__(self, index_id: _Optional[str] = ..., patches: _Optional[_Iterable[_Union[_index_service_pb2.ItemPatch, _Mapping]]] = ..., selection: _Optional[_Union[_index_service_pb2.ItemSelection, _Mapping]] = ..., request_id: _Optional[str] = ..., dry_run: _Optional[bool] = ..., page_token: _Optional[str] = ..., consistency_token: _Optional[str] = ...) -> None: ...

class ChangeItemsResponse(_message.Message):
    __slots__ = ("changed_count", "consistency_token", "failures", "item_ids", "next_page_token")
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    changed_count: int
    consistency_token: str
    failures: _containers.RepeatedCompositeFieldContainer[ItemFailure]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, changed_count: _Optional[int] = ..., consistency_token: _Optional[str] = ..., failures: _Optional[_Iterable[_Union[ItemFailure, _Mapping]]] = ..., item_ids: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ItemFailure(_message.Message):
    __slots__ = ("item_id", "error")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    error: _error_reason_pb2.ItemError
    def __init__(self, item_id: _Optional[str] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class RemoveItemsRequest(_message.Message):
    __slots__ = ("index_id", "item_ids", "request_id", "selection", "dry_run", "page_token", "consistency_token")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    selection: _index_service_pb2.ItemSelection
    dry_run: bool
    page_token: str
    consistency_token: str
    def __init__(self, index_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ..., selection: _Optional[_Union[_index_service_pb2.ItemSelection, _Mapping]] = ..., dry_run: _Optional[bool] = ..., page_token: _Optional[str] = ..., consistency_token: _Optional[str] = ...) -> None: ...

class RemoveItemsResponse(_message.Message):
    __slots__ = ("removed_count", "consistency_token", "item_ids", "next_page_token")
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    removed_count: int
    consistency_token: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    def __init__(self, removed_count: _Optional[int] = ..., consistency_token: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RemoveIndexRequest(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class RemoveIndexResponse(_message.Message):
    __slots__ = ("removed_count", "consistency_token", "is_complete")
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    removed_count: int
    consistency_token: str
    is_complete: bool
    def __init__(self, removed_count: _Optional[int] = ..., consistency_token: _Optional[str] = ..., is_complete: _Optional[bool] = ...) -> None: ...

class DescribeIndexRequest(_message.Message):
    __slots__ = ("index_id", "full_coverage_required")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    FULL_COVERAGE_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    full_coverage_required: bool
    def __init__(self, index_id: _Optional[str] = ..., full_coverage_required: _Optional[bool] = ...) -> None: ...

class DescribeIndexResponse(_message.Message):
    __slots__ = ("model_fingerprint", "embedding_dimension", "shards", "live_recalls", "coverage", "degradations")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    LIVE_RECALLS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    embedding_dimension: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardIndex]
    live_recalls: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.DirectionRecall]
    coverage: Coverage
    degradations: _containers.RepeatedScalarFieldContainer[Degradation]
    def __init__(self, model_fingerprint: _Optional[str] = ..., embedding_dimension: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardIndex, _Mapping]]] = ..., live_recalls: _Optional[_Iterable[_Union[_index_service_pb2.DirectionRecall, _Mapping]]] = ..., coverage: _Optional[_Union[Coverage, _Mapping]] = ..., degradations: _Optional[_Iterable[_Union[Degradation, str]]] = ...) -> None: ...

class ShardIndex(_message.Message):
    __slots__ = ("shard_number", "parts", "keyword_state")
    SHARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_STATE_FIELD_NUMBER: _ClassVar[int]
    shard_number: int
    parts: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.IndexPart]
    keyword_state: _index_service_pb2.KeywordState
    def __init__(self, shard_number: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[_index_service_pb2.IndexPart, _Mapping]]] = ..., keyword_state: _Optional[_Union[_index_service_pb2.KeywordState, str]] = ...) -> None: ...

class ListIndexesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "full_coverage_required")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FULL_COVERAGE_REQUIRED_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    full_coverage_required: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., full_coverage_required: _Optional[bool] = ...) -> None: ...

class SetCalibrationsRequest(_message.Message):
    __slots__ = ("index_id", "calibrations")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    calibrations: _containers.RepeatedCompositeFieldContainer[_score_calibration_pb2.ScoreCalibration]
    def __init__(self, index_id: _Optional[str] = ..., calibrations: _Optional[_Iterable[_Union[_score_calibration_pb2.ScoreCalibration, _Mapping]]] = ...) -> None: ...

class SetCalibrationsResponse(_message.Message):
    __slots__ = ("calibration_count",)
    CALIBRATION_COUNT_FIELD_NUMBER: _ClassVar[int]
    calibration_count: int
    def __init__(self, calibration_count: _Optional[int] = ...) -> None: ...

class ListIndexesResponse(_message.Message):
    __slots__ = ("indexes", "next_page_token", "missing_shards")
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHARDS_FIELD_NUMBER: _ClassVar[int]
    indexes: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.IndexSummary]
    next_page_token: str
    missing_shards: _containers.RepeatedCompositeFieldContainer[MissingShard]
    def __init__(self, indexes: _Optional[_Iterable[_Union[_index_service_pb2.IndexSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., missing_shards: _Optional[_Iterable[_Union[MissingShard, _Mapping]]] = ...) -> None: ...
