import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import attribute_pb2 as _attribute_pb2
from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from tandem.v1 import index_service_pb2 as _index_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchItemsRequest(_message.Message):
    __slots__ = ("query", "index_id", "target_modality", "retrieve_k", "rerank_k", "return_n", "rerank_disabled", "content_included", "filter", "consistency_tokens", "full_coverage_required")
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
    def __init__(self, query: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., index_id: _Optional[str] = ..., target_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., retrieve_k: _Optional[int] = ..., rerank_k: _Optional[int] = ..., return_n: _Optional[int] = ..., rerank_disabled: _Optional[bool] = ..., content_included: _Optional[bool] = ..., filter: _Optional[_Union[_attribute_pb2.Filter, _Mapping]] = ..., consistency_tokens: _Optional[_Iterable[str]] = ..., full_coverage_required: _Optional[bool] = ...) -> None: ...

class SearchItemsResponse(_message.Message):
    __slots__ = ("items", "model_fingerprint", "durations", "coverage")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DURATIONS_FIELD_NUMBER: _ClassVar[int]
    COVERAGE_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RankedItem]
    model_fingerprint: str
    durations: StageDurations
    coverage: Coverage
    def __init__(self, items: _Optional[_Iterable[_Union[RankedItem, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., durations: _Optional[_Union[StageDurations, _Mapping]] = ..., coverage: _Optional[_Union[Coverage, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("item_id", "similarity", "match_logit", "match_probability", "retrieve_rank", "final_rank", "content", "attributes")
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
    item_id: str
    similarity: float
    match_logit: float
    match_probability: float
    retrieve_rank: int
    final_rank: int
    content: _content_pb2.Content
    attributes: _containers.MessageMap[str, _attribute_pb2.AttributeValue]
    def __init__(self, item_id: _Optional[str] = ..., similarity: _Optional[float] = ..., match_logit: _Optional[float] = ..., match_probability: _Optional[float] = ..., retrieve_rank: _Optional[int] = ..., final_rank: _Optional[int] = ..., content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., attributes: _Optional[_Mapping[str, _attribute_pb2.AttributeValue]] = ...) -> None: ...

class StageDurations(_message.Message):
    __slots__ = ("encode_duration", "retrieve_duration", "rerank_duration", "fetch_duration", "total_duration")
    ENCODE_DURATION_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_DURATION_FIELD_NUMBER: _ClassVar[int]
    RERANK_DURATION_FIELD_NUMBER: _ClassVar[int]
    FETCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    TOTAL_DURATION_FIELD_NUMBER: _ClassVar[int]
    encode_duration: _duration_pb2.Duration
    retrieve_duration: _duration_pb2.Duration
    rerank_duration: _duration_pb2.Duration
    fetch_duration: _duration_pb2.Duration
    total_duration: _duration_pb2.Duration
    def __init__(self, encode_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., retrieve_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., rerank_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., fetch_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., total_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class IngestItemsRequest(_message.Message):
    __slots__ = ("index_id", "items", "request_id")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    items: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.Item]
    request_id: str
    def __init__(self, index_id: _Optional[str] = ..., items: _Optional[_Iterable[_Union[_index_service_pb2.Item, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class IngestItemsResponse(_message.Message):
    __slots__ = ("results", "consistency_token")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[IngestResult]
    consistency_token: str
    def __init__(self, results: _Optional[_Iterable[_Union[IngestResult, _Mapping]]] = ..., consistency_token: _Optional[str] = ...) -> None: ...

class IngestResult(_message.Message):
    __slots__ = ("item_id", "error")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    error: _error_reason_pb2.ItemError
    def __init__(self, item_id: _Optional[str] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class RemoveItemsRequest(_message.Message):
    __slots__ = ("index_id", "item_ids", "request_id")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    def __init__(self, index_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class RemoveItemsResponse(_message.Message):
    __slots__ = ("removed_count", "consistency_token")
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_TOKEN_FIELD_NUMBER: _ClassVar[int]
    removed_count: int
    consistency_token: str
    def __init__(self, removed_count: _Optional[int] = ..., consistency_token: _Optional[str] = ...) -> None: ...
