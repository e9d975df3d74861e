from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Modality(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODALITY_UNSPECIFIED: _ClassVar[Modality]
    MODALITY_TEXT: _ClassVar[Modality]
    MODALITY_IMAGE: _ClassVar[Modality]

class TruncationPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_POLICY_UNSPECIFIED: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_ERROR: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_TRUNCATE: _ClassVar[TruncationPolicy]
    TRUNCATION_POLICY_BEST_WINDOW: _ClassVar[TruncationPolicy]
MODALITY_UNSPECIFIED: Modality
MODALITY_TEXT: Modality
MODALITY_IMAGE: Modality
TRUNCATION_POLICY_UNSPECIFIED: TruncationPolicy
TRUNCATION_POLICY_ERROR: TruncationPolicy
TRUNCATION_POLICY_TRUNCATE: TruncationPolicy
TRUNCATION_POLICY_BEST_WINDOW: TruncationPolicy

class Content(_message.Message):
    __slots__ = ("text", "image", "regions")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    text: str
    image: bytes
    regions: RegionContent
    def __init__(self, text: _Optional[str] = ..., image: _Optional[bytes] = ..., regions: _Optional[_Union[RegionContent, _Mapping]] = ...) -> None: ...

class RegionContent(_message.Message):
    __slots__ = ("features", "boxes", "region_count", "feature_width", "image_width", "image_height")
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    REGION_COUNT_FIELD_NUMBER: _ClassVar[int]
    FEATURE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    features: bytes
    boxes: bytes
    region_count: int
    feature_width: int
    image_width: int
    image_height: int
    def __init__(self, features: _Optional[bytes] = ..., boxes: _Optional[bytes] = ..., region_count: _Optional[int] = ..., feature_width: _Optional[int] = ..., image_width: _Optional[int] = ..., image_height: _Optional[int] = ...) -> None: ...

class TextUse(_message.Message):
    __slots__ = ("token_count", "used_token_count", "truncated")
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    USED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    token_count: int
    used_token_count: int
    truncated: bool
    def __init__(self, token_count: _Optional[int] = ..., used_token_count: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class Embedding(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    def __init__(self, values: _Optional[bytes] = ...) -> None: ...

class ContentTokens(_message.Message):
    __slots__ = ("text", "image")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    text: TextTokens
    image: ImageTokens
    def __init__(self, text: _Optional[_Union[TextTokens, _Mapping]] = ..., image: _Optional[_Union[ImageTokens, _Mapping]] = ...) -> None: ...

class TextTokens(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    def __init__(self, ids: _Optional[bytes] = ...) -> None: ...

class ImageTokens(_message.Message):
    __slots__ = ("values", "token_count", "width")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    values: bytes
    token_count: int
    width: int
    def __init__(self, values: _Optional[bytes] = ..., token_count: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...
