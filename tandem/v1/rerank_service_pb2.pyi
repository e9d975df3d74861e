import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreCandidatesRequest(_message.Message):
    __slots__ = ("index_id", "query", "model_fingerprint", "item_ids")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    query: _content_pb2.ContentTokens
    model_fingerprint: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index_id: _Optional[str] = ..., query: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., model_fingerprint: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ScoreCandidatesResponse(_message.Message):
    __slots__ = ("scores", "read_duration", "inference_duration")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    READ_DURATION_FIELD_NUMBER: _ClassVar[int]
    INFERENCE_DURATION_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[CandidateScore]
    read_duration: _duration_pb2.Duration
    inference_duration: _duration_pb2.Duration
    def __init__(self, scores: _Optional[_Iterable[_Union[CandidateScore, _Mapping]]] = ..., read_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., inference_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CandidateScore(_message.Message):
    __slots__ = ("match_logit", "match_probability")
    MATCH_LOGIT_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    match_logit: float
    match_probability: float
    def __init__(self, match_logit: _Optional[float] = ..., match_probability: _Optional[float] = ...) -> None: ...
