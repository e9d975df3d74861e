import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BackUpShardRequest(_message.Message):
    __slots__ = ("folder",)
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    folder: str
    def __init__(self, folder: _Optional[str] = ...) -> None: ...

class BackUpShardResponse(_message.Message):
    __slots__ = ("uploaded_bytes", "upload_limit_bytes", "backup")
    UPLOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    uploaded_bytes: int
    upload_limit_bytes: int
    backup: ShardBackup
    def __init__(self, uploaded_bytes: _Optional[int] = ..., upload_limit_bytes: _Optional[int] = ..., backup: _Optional[_Union[ShardBackup, _Mapping]] = ...) -> None: ...

class ShardBackup(_message.Message):
    __slots__ = ("name", "sequence", "data_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DATA_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    sequence: int
    data_bytes: int
    def __init__(self, name: _Optional[str] = ..., sequence: _Optional[int] = ..., data_bytes: _Optional[int] = ...) -> None: ...

class DescribeIndexesRequest(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class DescribeIndexesResponse(_message.Message):
    __slots__ = ("descriptions", "applied_sequence")
    DESCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    descriptions: _containers.RepeatedCompositeFieldContainer[IndexDescription]
    applied_sequence: int
    def __init__(self, descriptions: _Optional[_Iterable[_Union[IndexDescription, _Mapping]]] = ..., applied_sequence: _Optional[int] = ...) -> None: ...

class IndexDescription(_message.Message):
    __slots__ = ("index_id", "modality", "model_fingerprint", "dimension", "item_count", "dead_row_count", "tail_row_count", "index_type", "tuning", "parameters", "index_bytes", "built_recall_percent", "list_imbalance", "device", "fallback_reason", "activity", "snapshot_sequence", "live_recalls")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LiveRecallsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: LiveRecall
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[LiveRecall, _Mapping]] = ...) -> None: ...
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DIMENSION_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    TAIL_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEX_TYPE_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUILT_RECALL_PERCENT_FIELD_NUMBER: _ClassVar[int]
    LIST_IMBALANCE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LIVE_RECALLS_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    modality: _content_pb2.Modality
    model_fingerprint: str
    dimension: int
    item_count: int
    dead_row_count: int
    tail_row_count: int
    index_type: str
    tuning: IndexTuning
    parameters: _containers.ScalarMap[str, float]
    index_bytes: int
    built_recall_percent: float
    list_imbalance: float
    device: str
    fallback_reason: str
    activity: str
    snapshot_sequence: int
    live_recalls: _containers.MessageMap[str, LiveRecall]
    def __init__(self, index_id: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., model_fingerprint: _Optional[str] = ..., dimension: _Optional[int] = ..., item_count: _Optional[int] = ..., dead_row_count: _Optional[int] = ..., tail_row_count: _Optional[int] = ..., index_type: _Optional[str] = ..., tuning: _Optional[_Union[IndexTuning, _Mapping]] = ..., parameters: _Optional[_Mapping[str, float]] = ..., index_bytes: _Optional[int] = ..., built_recall_percent: _Optional[float] = ..., list_imbalance: _Optional[float] = ..., device: _Optional[str] = ..., fallback_reason: _Optional[str] = ..., activity: _Optional[str] = ..., snapshot_sequence: _Optional[int] = ..., live_recalls: _Optional[_Mapping[str, LiveRecall]] = ...) -> None: ...

class LiveRecall(_message.Message):
    __slots__ = ("recall", "search_count")
    RECALL_FIELD_NUMBER: _ClassVar[int]
    SEARCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    recall: float
    search_count: int
    def __init__(self, recall: _Optional[float] = ..., search_count: _Optional[int] = ...) -> None: ...

class IndexTuning(_message.Message):
    __slots__ = ("index_type", "parameters", "recall_target", "memory_bytes")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    INDEX_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RECALL_TARGET_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    index_type: str
    parameters: _containers.ScalarMap[str, float]
    recall_target: float
    memory_bytes: int
    def __init__(self, index_type: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., recall_target: _Optional[float] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

class TuneIndexRequest(_message.Message):
    __slots__ = ("index_id", "modality", "tuning")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    modality: _content_pb2.Modality
    tuning: IndexTuning
    def __init__(self, index_id: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., tuning: _Optional[_Union[IndexTuning, _Mapping]] = ...) -> None: ...

class TuneIndexResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RebuildIndexRequest(_message.Message):
    __slots__ = ("index_id", "modality")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    modality: _content_pb2.Modality
    def __init__(self, index_id: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ...) -> None: ...

class RebuildIndexResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AdviseIndexTypeRequest(_message.Message):
    __slots__ = ("index_id", "modality", "recall_target", "memory_bytes", "index_types")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    RECALL_TARGET_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_TYPES_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    modality: _content_pb2.Modality
    recall_target: float
    memory_bytes: int
    index_types: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index_id: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., recall_target: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., index_types: _Optional[_Iterable[str]] = ...) -> None: ...

class AdviseIndexTypeResponse(_message.Message):
    __slots__ = ("index_type", "parameters", "recall_percent", "search_p50_duration", "search_p99_duration", "build_duration", "index_bytes", "fits", "refusal")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    INDEX_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    RECALL_PERCENT_FIELD_NUMBER: _ClassVar[int]
    SEARCH_P50_DURATION_FIELD_NUMBER: _ClassVar[int]
    SEARCH_P99_DURATION_FIELD_NUMBER: _ClassVar[int]
    BUILD_DURATION_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    FITS_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    index_type: str
    parameters: _containers.ScalarMap[str, float]
    recall_percent: float
    search_p50_duration: _duration_pb2.Duration
    search_p99_duration: _duration_pb2.Duration
    build_duration: _duration_pb2.Duration
    index_bytes: int
    fits: bool
    refusal: str
    def __init__(self, index_type: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., recall_percent: _Optional[float] = ..., search_p50_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., search_p99_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., build_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., index_bytes: _Optional[int] = ..., fits: _Optional[bool] = ..., refusal: _Optional[str] = ...) -> None: ...

class ReadChangesRequest(_message.Message):
    __slots__ = ("after_sequence", "max_count")
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    max_count: int
    def __init__(self, after_sequence: _Optional[int] = ..., max_count: _Optional[int] = ...) -> None: ...

class ReadChangesResponse(_message.Message):
    __slots__ = ("changes", "is_trimmed", "sequence", "store_id", "shard_number", "shard_count", "shard_map_version")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    IS_TRIMMED_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STORE_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ItemChange]
    is_trimmed: bool
    sequence: int
    store_id: str
    shard_number: int
    shard_count: int
    shard_map_version: int
    def __init__(self, changes: _Optional[_Iterable[_Union[ItemChange, _Mapping]]] = ..., is_trimmed: _Optional[bool] = ..., sequence: _Optional[int] = ..., store_id: _Optional[str] = ..., shard_number: _Optional[int] = ..., shard_count: _Optional[int] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class ItemChange(_message.Message):
    __slots__ = ("sequence", "index_id", "item_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    index_id: str
    item_id: str
    def __init__(self, sequence: _Optional[int] = ..., index_id: _Optional[str] = ..., item_id: _Optional[str] = ...) -> None: ...

class FenceWritesRequest(_message.Message):
    __slots__ = ("duration", "sealed_sequence")
    DURATION_FIELD_NUMBER: _ClassVar[int]
    SEALED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    duration: _duration_pb2.Duration
    sealed_sequence: int
    def __init__(self, duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sealed_sequence: _Optional[int] = ...) -> None: ...

class FenceWritesResponse(_message.Message):
    __slots__ = ("sequence", "is_sealed")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IS_SEALED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    is_sealed: bool
    def __init__(self, sequence: _Optional[int] = ..., is_sealed: _Optional[bool] = ...) -> None: ...
