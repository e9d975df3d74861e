import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EncodeContentsRequest(_message.Message):
    __slots__ = ("contents",)
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    contents: _containers.RepeatedCompositeFieldContainer[_content_pb2.Content]
    def __init__(self, contents: _Optional[_Iterable[_Union[_content_pb2.Content, _Mapping]]] = ...) -> None: ...

class EncodeContentsResponse(_message.Message):
    __slots__ = ("results", "model_fingerprint", "preprocess_duration", "inference_duration")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PREPROCESS_DURATION_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EncodeResult]
    model_fingerprint: str
    preprocess_duration: _duration_pb2.Duration
    inference_duration: _duration_pb2.Duration
    def __init__(self, results: _Optional[_Iterable[_Union[EncodeResult, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., preprocess_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class EncodeResult(_message.Message):
    __slots__ = ("encoding", "error")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    error: _error_reason_pb2.ItemError
    def __init__(self, encoding: _Optional[_Union[Encoding, _Mapping]] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ("embedding", "tokens")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    tokens: _content_pb2.ContentTokens
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., tokens: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ...) -> None: ...
