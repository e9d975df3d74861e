from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GenerationState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GENERATION_STATE_UNSPECIFIED: _ClassVar[GenerationState]
    GENERATION_STATE_SERVING: _ClassVar[GenerationState]
    GENERATION_STATE_SCANNING: _ClassVar[GenerationState]
    GENERATION_STATE_FOLLOWING: _ClassVar[GenerationState]
    GENERATION_STATE_WAITING: _ClassVar[GenerationState]
    GENERATION_STATE_LEFT: _ClassVar[GenerationState]
GENERATION_STATE_UNSPECIFIED: GenerationState
GENERATION_STATE_SERVING: GenerationState
GENERATION_STATE_SCANNING: GenerationState
GENERATION_STATE_FOLLOWING: GenerationState
GENERATION_STATE_WAITING: GenerationState
GENERATION_STATE_LEFT: GenerationState

class CreateGenerationRequest(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class CreateGenerationResponse(_message.Message):
    __slots__ = ("index_id", "model_fingerprint")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ...) -> None: ...

class ListGenerationsRequest(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class ListGenerationsResponse(_message.Message):
    __slots__ = ("aliases",)
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    aliases: _containers.RepeatedCompositeFieldContainer[AliasGenerations]
    def __init__(self, aliases: _Optional[_Iterable[_Union[AliasGenerations, _Mapping]]] = ...) -> None: ...

class AliasGenerations(_message.Message):
    __slots__ = ("index_id", "serving_id", "generations", "rolled_back_why", "last_outcome")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    SERVING_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATIONS_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_WHY_FIELD_NUMBER: _ClassVar[int]
    LAST_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    serving_id: str
    generations: _containers.RepeatedCompositeFieldContainer[Generation]
    rolled_back_why: str
    last_outcome: str
    def __init__(self, index_id: _Optional[str] = ..., serving_id: _Optional[str] = ..., generations: _Optional[_Iterable[_Union[Generation, _Mapping]]] = ..., rolled_back_why: _Optional[str] = ..., last_outcome: _Optional[str] = ...) -> None: ...

class Generation(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "state", "item_count", "scanned_count", "remaining_seconds", "lag_count", "waits_for", "failed_items", "created_time", "truncated_count")
    class FailedItemsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    SCANNED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMAINING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LAG_COUNT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    FAILED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_COUNT_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    state: GenerationState
    item_count: int
    scanned_count: int
    remaining_seconds: float
    lag_count: int
    waits_for: str
    failed_items: _containers.ScalarMap[str, str]
    created_time: float
    truncated_count: int
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., state: _Optional[_Union[GenerationState, str]] = ..., item_count: _Optional[int] = ..., scanned_count: _Optional[int] = ..., remaining_seconds: _Optional[float] = ..., lag_count: _Optional[int] = ..., waits_for: _Optional[str] = ..., failed_items: _Optional[_Mapping[str, str]] = ..., created_time: _Optional[float] = ..., truncated_count: _Optional[int] = ...) -> None: ...

class PromoteGenerationRequest(_message.Message):
    __slots__ = ("index_id", "evidence", "ungated_why")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    UNGATED_WHY_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    evidence: str
    ungated_why: str
    def __init__(self, index_id: _Optional[str] = ..., evidence: _Optional[str] = ..., ungated_why: _Optional[str] = ...) -> None: ...

class PromoteGenerationResponse(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class RollBackGenerationRequest(_message.Message):
    __slots__ = ("index_id", "why")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    why: str
    def __init__(self, index_id: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class RollBackGenerationResponse(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class DropGenerationRequest(_message.Message):
    __slots__ = ("index_id",)
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    def __init__(self, index_id: _Optional[str] = ...) -> None: ...

class DropGenerationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
