from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeModelRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeModelResponse(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: ModelDescription
    def __init__(self, model: _Optional[_Union[ModelDescription, _Mapping]] = ...) -> None: ...

class ModelDescription(_message.Message):
    __slots__ = ("fingerprint", "family", "precision", "embedding_dimension", "max_text_token_count", "max_text_bytes", "max_image_bytes", "max_image_pixel_count", "probability_calibration", "adaptive_depth_rule", "version", "region_feature_width", "max_region_count", "neighbour_model", "text_similarity_calibration")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_IMAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_IMAGE_PIXEL_COUNT_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    ADAPTIVE_DEPTH_RULE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGION_FEATURE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MAX_REGION_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_SIMILARITY_CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    family: str
    precision: str
    embedding_dimension: int
    max_text_token_count: int
    max_text_bytes: int
    max_image_bytes: int
    max_image_pixel_count: int
    probability_calibration: ProbabilityCalibration
    adaptive_depth_rule: AdaptiveDepthRule
    version: int
    region_feature_width: int
    max_region_count: int
    neighbour_model: NeighbourModel
    text_similarity_calibration: ProbabilityCalibration
    def __init__(self, fingerprint: _Optional[str] = ..., family: _Optional[str] = ..., precision: _Optional[str] = ..., embedding_dimension: _Optional[int] = ..., max_text_token_count: _Optional[int] = ..., max_text_bytes: _Optional[int] = ..., max_image_bytes: _Optional[int] = ..., max_image_pixel_count: _Optional[int] = ..., probability_calibration: _Optional[_Union[ProbabilityCalibration, _Mapping]] = ..., adaptive_depth_rule: _Optional[_Union[AdaptiveDepthRule, _Mapping]] = ..., version: _Optional[int] = ..., region_feature_width: _Optional[int] = ..., max_region_count: _Optional[int] = ..., neighbour_model: _Optional[_Union[NeighbourModel, _Mapping]] = ..., text_similarity_calibration: _Optional[_Union[ProbabilityCalibration, _Mapping]] = ...) -> None: ...

class NeighbourModel(_message.Message):
    __slots__ = ("fingerprint", "base_fingerprint", "text_query_item_count", "image_query_item_count", "pillar_count", "neighbour_count", "includes_query_pillar", "rerank_k")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    BASE_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TEXT_QUERY_ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_QUERY_ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    PILLAR_COUNT_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_COUNT_FIELD_NUMBER: _ClassVar[int]
    INCLUDES_QUERY_PILLAR_FIELD_NUMBER: _ClassVar[int]
    RERANK_K_FIELD_NUMBER: _ClassVar[int]
    fingerprint: str
    base_fingerprint: str
    text_query_item_count: int
    image_query_item_count: int
    pillar_count: int
    neighbour_count: int
    includes_query_pillar: bool
    rerank_k: int
    def __init__(self, fingerprint: _Optional[str] = ..., base_fingerprint: _Optional[str] = ..., text_query_item_count: _Optional[int] = ..., image_query_item_count: _Optional[int] = ..., pillar_count: _Optional[int] = ..., neighbour_count: _Optional[int] = ..., includes_query_pillar: _Optional[bool] = ..., rerank_k: _Optional[int] = ...) -> None: ...

class ProbabilityCalibration(_message.Message):
    __slots__ = ("scale", "bias")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    scale: float
    bias: float
    def __init__(self, scale: _Optional[float] = ..., bias: _Optional[float] = ...) -> None: ...

class AdaptiveDepthRule(_message.Message):
    __slots__ = ("first_count", "further_count", "intercept", "best_logit_weight", "margin_weight", "similarity_gap_weight", "log_rank_weight", "stop_chance")
    FIRST_COUNT_FIELD_NUMBER: _ClassVar[int]
    FURTHER_COUNT_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    BEST_LOGIT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MARGIN_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_GAP_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LOG_RANK_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    STOP_CHANCE_FIELD_NUMBER: _ClassVar[int]
    first_count: int
    further_count: int
    intercept: float
    best_logit_weight: float
    margin_weight: float
    similarity_gap_weight: float
    log_rank_weight: float
    stop_chance: float
    def __init__(self, first_count: _Optional[int] = ..., further_count: _Optional[int] = ..., intercept: _Optional[float] = ..., best_logit_weight: _Optional[float] = ..., margin_weight: _Optional[float] = ..., similarity_gap_weight: _Optional[float] = ..., log_rank_weight: _Optional[float] = ..., stop_chance: _Optional[float] = ...) -> None: ...
