from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_MALFORMED: _ClassVar[ErrorReason]
    ERROR_REASON_CONTENT_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_TEXT_EMPTY: _ClassVar[ErrorReason]
    ERROR_REASON_TEXT_TOO_LONG: _ClassVar[ErrorReason]
    ERROR_REASON_IMAGE_UNREADABLE: _ClassVar[ErrorReason]
    ERROR_REASON_IMAGE_TOO_LARGE: _ClassVar[ErrorReason]
    ERROR_REASON_K_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_BATCH_SIZE_OUT_OF_RANGE: _ClassVar[ErrorReason]
    ERROR_REASON_INDEX_ID_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_INDEX_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_ITEM_ID_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_ITEM_ID_DUPLICATE: _ClassVar[ErrorReason]
    ERROR_REASON_EMBEDDING_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_TOKENS_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_OUTPUT_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SERVICE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_OVERLOADED: _ClassVar[ErrorReason]
    ERROR_REASON_STORE_FULL: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_ITEM_CORRUPT: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_FILTER_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_ATTRIBUTE_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_SEQUENCE_NOT_REACHED: _ClassVar[ErrorReason]
    ERROR_REASON_CONSISTENCY_TOKEN_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_SHARDS_MISSING: _ClassVar[ErrorReason]
    ERROR_REASON_SHARD_MAP_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_INDEX_TYPE_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_QUERY_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_ITEM_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_RANKING_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_CURSOR_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_RERANK_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_TRUNCATION_POLICY_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_QUOTA_EXCEEDED: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_REQUEST_MALFORMED: ErrorReason
ERROR_REASON_CONTENT_MISSING: ErrorReason
ERROR_REASON_TEXT_EMPTY: ErrorReason
ERROR_REASON_TEXT_TOO_LONG: ErrorReason
ERROR_REASON_IMAGE_UNREADABLE: ErrorReason
ERROR_REASON_IMAGE_TOO_LARGE: ErrorReason
ERROR_REASON_K_OUT_OF_RANGE: ErrorReason
ERROR_REASON_BATCH_SIZE_OUT_OF_RANGE: ErrorReason
ERROR_REASON_INDEX_ID_INVALID: ErrorReason
ERROR_REASON_INDEX_NOT_FOUND: ErrorReason
ERROR_REASON_ITEM_ID_INVALID: ErrorReason
ERROR_REASON_ITEM_ID_DUPLICATE: ErrorReason
ERROR_REASON_EMBEDDING_INVALID: ErrorReason
ERROR_REASON_TOKENS_INVALID: ErrorReason
ERROR_REASON_MODEL_MISMATCH: ErrorReason
ERROR_REASON_MODEL_UNAVAILABLE: ErrorReason
ERROR_REASON_MODEL_OUTPUT_INVALID: ErrorReason
ERROR_REASON_SERVICE_UNAVAILABLE: ErrorReason
ERROR_REASON_OVERLOADED: ErrorReason
ERROR_REASON_STORE_FULL: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_ITEM_CORRUPT: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_FILTER_INVALID: ErrorReason
ERROR_REASON_ATTRIBUTE_INVALID: ErrorReason
ERROR_REASON_REQUEST_ID_INVALID: ErrorReason
ERROR_REASON_REQUEST_ID_REUSED: ErrorReason
ERROR_REASON_SEQUENCE_NOT_REACHED: ErrorReason
ERROR_REASON_CONSISTENCY_TOKEN_INVALID: ErrorReason
ERROR_REASON_SHARDS_MISSING: ErrorReason
ERROR_REASON_SHARD_MAP_MISMATCH: ErrorReason
ERROR_REASON_INDEX_TYPE_INVALID: ErrorReason
ERROR_REASON_QUERY_INVALID: ErrorReason
ERROR_REASON_ITEM_NOT_FOUND: ErrorReason
ERROR_REASON_RANKING_INVALID: ErrorReason
ERROR_REASON_CURSOR_INVALID: ErrorReason
ERROR_REASON_RERANK_UNAVAILABLE: ErrorReason
ERROR_REASON_TRUNCATION_POLICY_INVALID: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_QUOTA_EXCEEDED: ErrorReason

class ItemError(_message.Message):
    __slots__ = ("reason", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: ErrorReason
    message: str
    def __init__(self, reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ...) -> None: ...
