import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import cost_pb2 as _cost_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodePurpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODE_PURPOSE_UNSPECIFIED: _ClassVar[EncodePurpose]
    ENCODE_PURPOSE_QUERY: _ClassVar[EncodePurpose]
    ENCODE_PURPOSE_INGEST: _ClassVar[EncodePurpose]
ENCODE_PURPOSE_UNSPECIFIED: EncodePurpose
ENCODE_PURPOSE_QUERY: EncodePurpose
ENCODE_PURPOSE_INGEST: EncodePurpose

class EncodeContentsRequest(_message.Message):
    __slots__ = ("contents", "truncation_policy", "purpose")
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    contents: _containers.RepeatedCompositeFieldContainer[_content_pb2.Content]
    truncation_policy: _content_pb2.TruncationPolicy
    purpose: EncodePurpose
    def __init__(self, contents: _Optional[_Iterable[_Union[_content_pb2.Content, _Mapping]]] = ..., truncation_policy: _Optional[_Union[_content_pb2.TruncationPolicy, str]] = ..., purpose: _Optional[_Union[EncodePurpose, str]] = ...) -> None: ...

class EncodeContentsResponse(_message.Message):
    __slots__ = ("results", "model_fingerprint", "preprocess_duration", "inference_duration", "cost", "model_unavailable", "model_version")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PREPROCESS_DURATION_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    MODEL_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EncodeResult]
    model_fingerprint: str
    preprocess_duration: _duration_pb2.Duration
    inference_duration: _duration_pb2.Duration
    cost: _cost_pb2.InferenceCost
    model_unavailable: bool
    model_version: int
    def __init__(self, results: _Optional[_Iterable[_Union[EncodeResult, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., preprocess_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., model_unavailable: _Optional[bool] = ..., model_version: _Optional[int] = ...) -> None: ...

class EncodeResult(_message.Message):
    __slots__ = ("encoding", "error")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    error: _error_reason_pb2.ItemError
    def __init__(self, encoding: _Optional[_Union[Encoding, _Mapping]] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("embedding", "tokens", "text_use", "further_windows")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEXT_USE_FIELD_NUMBER: _ClassVar[int]
    FURTHER_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    tokens: _content_pb2.ContentTokens
    text_use: _content_pb2.TextUse
    further_windows: _containers.RepeatedCompositeFieldContainer[Encoding]
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., tokens: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., text_use: _Optional[_Union[_content_pb2.TextUse, _Mapping]] = ..., further_windows: _Optional[_Iterable[_Union[Encoding, _Mapping]]] = ...) -> None: ...
