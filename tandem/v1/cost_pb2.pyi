import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InferenceCost(_message.Message):
    __slots__ = ("pair_count", "token_count", "padded_token_count", "cache_hit_count", "cache_miss_count", "triton_queue_duration", "triton_compute_duration")
    PAIR_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    PADDED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHE_HIT_COUNT_FIELD_NUMBER: _ClassVar[int]
    CACHE_MISS_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRITON_QUEUE_DURATION_FIELD_NUMBER: _ClassVar[int]
    TRITON_COMPUTE_DURATION_FIELD_NUMBER: _ClassVar[int]
    pair_count: int
    token_count: int
    padded_token_count: int
    cache_hit_count: int
    cache_miss_count: int
    triton_queue_duration: _duration_pb2.Duration
    triton_compute_duration: _duration_pb2.Duration
    def __init__(self, pair_count: _Optional[int] = ..., token_count: _Optional[int] = ..., padded_token_count: _Optional[int] = ..., cache_hit_count: _Optional[int] = ..., cache_miss_count: _Optional[int] = ..., triton_queue_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., triton_compute_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...
