from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import search_service_pb2 as _search_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchCursor(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "return_n", "given_count", "coverage", "rerank", "degradations", "item_ids", "similarities", "match_logits", "match_probabilities", "retrieve_ranks", "modalities", "scores", "explanations", "model_version", "neighbours", "neighbour_scores", "hybrids")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RETURN_N_FIELD_NUMBER: _ClassVar[int]
    GIVEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    RERANK_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    SIMILARITIES_FIELD_NUMBER: _ClassVar[int]
    MATCH_LOGITS_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_RANKS_FIELD_NUMBER: _ClassVar[int]
    MODALITIES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    EXPLANATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_SCORES_FIELD_NUMBER: _ClassVar[int]
    HYBRIDS_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    return_n: int
    given_count: int
    coverage: _search_service_pb2.Coverage
    rerank: _search_service_pb2.RerankSummary
    degradations: _containers.RepeatedScalarFieldContainer[_search_service_pb2.Degradation]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    similarities: _containers.RepeatedScalarFieldContainer[float]
    match_logits: _containers.RepeatedScalarFieldContainer[float]
    match_probabilities: _containers.RepeatedScalarFieldContainer[float]
    retrieve_ranks: _containers.RepeatedScalarFieldContainer[int]
    modalities: _containers.RepeatedScalarFieldContainer[_content_pb2.Modality]
    scores: _containers.RepeatedScalarFieldContainer[float]
    explanations: _containers.RepeatedCompositeFieldContainer[_search_service_pb2.Explanation]
    model_version: int
    neighbours: _search_service_pb2.NeighbourSummary
    neighbour_scores: _containers.RepeatedScalarFieldContainer[float]
    hybrids: _containers.RepeatedCompositeFieldContainer[_search_service_pb2.HybridRank]
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., return_n: _Optional[int] = ..., given_count: _Optional[int] = ..., coverage: _Optional[_Union[_search_service_pb2.Coverage, _Mapping]] = ..., rerank: _Optional[_Union[_search_service_pb2.RerankSummary, _Mapping]] = ..., degradations: _Optional[_Iterable[_Union[_search_service_pb2.Degradation, str]]] = ..., item_ids: _Optional[_Iterable[str]] = ..., similarities: _Optional[_Iterable[float]] = ..., match_logits: _Optional[_Iterable[float]] = ..., match_probabilities: _Optional[_Iterable[float]] = ..., retrieve_ranks: _Optional[_Iterable[int]] = ..., modalities: _Optional[_Iterable[_Union[_content_pb2.Modality, str]]] = ..., scores: _Optional[_Iterable[float]] = ..., explanations: _Optional[_Iterable[_Union[_search_service_pb2.Explanation, _Mapping]]] = ..., model_version: _Optional[int] = ..., neighbours: _Optional[_Union[_search_service_pb2.NeighbourSummary, _Mapping]] = ..., neighbour_scores: _Optional[_Iterable[float]] = ..., hybrids: _Optional[_Iterable[_Union[_search_service_pb2.HybridRank, _Mapping]]] = ...) -> None: ...
