import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import cost_pb2 as _cost_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from tandem.v1 import search_service_pb2 as _search_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreCandidatesRequest(_message.Message):
    __slots__ = ("index_id", "query", "model_fingerprint", "item_ids", "model_version", "query_content")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_CONTENT_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    query: _content_pb2.ContentTokens
    model_fingerprint: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    model_version: int
    query_content: _content_pb2.Content
    def __init__(self, index_id: _Optional[str] = ..., query: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., model_fingerprint: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., model_version: _Optional[int] = ..., query_content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ...) -> None: ...

class ScoreCandidatesResponse(_message.Message):
    __slots__ = ("scores", "read_duration", "inference_duration", "cost", "model_version", "reranker", "default_fusion")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    READ_DURATION_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FUSION_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[CandidateScore]
    read_duration: _duration_pb2.Duration
    inference_duration: _duration_pb2.Duration
    cost: _cost_pb2.InferenceCost
    model_version: int
    reranker: str
    default_fusion: _search_service_pb2.FusionMethod
    def __init__(self, scores: _Optional[_Iterable[_Union[CandidateScore, _Mapping]]] = ..., read_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., model_version: _Optional[int] = ..., reranker: _Optional[str] = ..., default_fusion: _Optional[_Union[_search_service_pb2.FusionMethod, str]] = ...) -> None: ...

class ScoreBatchRequest(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "queries", "model_version")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    queries: _containers.RepeatedCompositeFieldContainer[QueryCandidates]
    model_version: int
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., queries: _Optional[_Iterable[_Union[QueryCandidates, _Mapping]]] = ..., model_version: _Optional[int] = ...) -> None: ...

class QueryCandidates(_message.Message):
    __slots__ = ("query", "item_ids", "query_content")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    QUERY_CONTENT_FIELD_NUMBER: _ClassVar[int]
    query: _content_pb2.ContentTokens
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    query_content: _content_pb2.Content
    def __init__(self, query: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., item_ids: _Optional[_Iterable[str]] = ..., query_content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ...) -> None: ...

class ScoreTokensRequest(_message.Message):
    __slots__ = ("query", "model_fingerprint", "candidates", "model_version")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    query: _content_pb2.ContentTokens
    model_fingerprint: str
    candidates: _containers.RepeatedCompositeFieldContainer[_content_pb2.ContentTokens]
    model_version: int
    def __init__(self, query: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., model_fingerprint: _Optional[str] = ..., candidates: _Optional[_Iterable[_Union[_content_pb2.ContentTokens, _Mapping]]] = ..., model_version: _Optional[int] = ...) -> None: ...

class ScoreTokensResponse(_message.Message):
    __slots__ = ("scores", "inference_duration", "cost", "model_version", "reranker")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[CandidateScore]
    inference_duration: _duration_pb2.Duration
    cost: _cost_pb2.InferenceCost
    model_version: int
    reranker: str
    def __init__(self, scores: _Optional[_Iterable[_Union[CandidateScore, _Mapping]]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., model_version: _Optional[int] = ..., reranker: _Optional[str] = ...) -> None: ...

class ScoreBatchResponse(_message.Message):
    __slots__ = ("results", "read_duration", "inference_duration", "cost", "model_version", "reranker", "default_fusion")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    READ_DURATION_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FUSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ScoreBatchResult]
    read_duration: _duration_pb2.Duration
    inference_duration: _duration_pb2.Duration
    cost: _cost_pb2.InferenceCost
    model_version: int
    reranker: str
    default_fusion: _search_service_pb2.FusionMethod
    def __init__(self, results: _Optional[_Iterable[_Union[ScoreBatchResult, _Mapping]]] = ..., read_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., model_version: _Optional[int] = ..., reranker: _Optional[str] = ..., default_fusion: _Optional[_Union[_search_service_pb2.FusionMethod, str]] = ...) -> None: ...

class ScoreBatchResult(_message.Message):
    __slots__ = ("scores", "error")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[CandidateScore]
    error: _error_reason_pb2.ItemError
    def __init__(self, scores: _Optional[_Iterable[_Union[CandidateScore, _Mapping]]] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class CandidateScore(_message.Message):
    __slots__ = ("match_logit", "match_probability")
    MATCH_LOGIT_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    match_logit: float
    match_probability: float
    def __init__(self, match_logit: _Optional[float] = ..., match_probability: _Optional[float] = ...) -> None: ...

class ScoreGraphRequest(_message.Message):
    __slots__ = ("model_fingerprint", "query_modality", "nodes", "item_pillars", "query_pillars", "query_similarities")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    QUERY_MODALITY_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ITEM_PILLARS_FIELD_NUMBER: _ClassVar[int]
    QUERY_PILLARS_FIELD_NUMBER: _ClassVar[int]
    QUERY_SIMILARITIES_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    query_modality: _content_pb2.Modality
    nodes: _containers.RepeatedCompositeFieldContainer[GraphNode]
    item_pillars: _containers.RepeatedCompositeFieldContainer[_content_pb2.Embedding]
    query_pillars: _containers.RepeatedCompositeFieldContainer[_content_pb2.Embedding]
    query_similarities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, model_fingerprint: _Optional[str] = ..., query_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., nodes: _Optional[_Iterable[_Union[GraphNode, _Mapping]]] = ..., item_pillars: _Optional[_Iterable[_Union[_content_pb2.Embedding, _Mapping]]] = ..., query_pillars: _Optional[_Iterable[_Union[_content_pb2.Embedding, _Mapping]]] = ..., query_similarities: _Optional[_Iterable[float]] = ...) -> None: ...

class GraphNode(_message.Message):
    __slots__ = ("embedding", "near_texts", "near_images")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    NEAR_TEXTS_FIELD_NUMBER: _ClassVar[int]
    NEAR_IMAGES_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    near_texts: _containers.RepeatedScalarFieldContainer[int]
    near_images: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., near_texts: _Optional[_Iterable[int]] = ..., near_images: _Optional[_Iterable[int]] = ...) -> None: ...

class ScoreGraphResponse(_message.Message):
    __slots__ = ("scores", "inference_duration", "cost", "neighbour_model")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_MODEL_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedScalarFieldContainer[float]
    inference_duration: _duration_pb2.Duration
    cost: _cost_pb2.InferenceCost
    neighbour_model: str
    def __init__(self, scores: _Optional[_Iterable[float]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., neighbour_model: _Optional[str] = ...) -> None: ...
