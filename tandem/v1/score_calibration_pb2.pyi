from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import model_service_pb2 as _model_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreCalibration(_message.Message):
    __slots__ = ("model_fingerprint", "model_version", "scorer", "query_modality", "target_modality", "hybrid", "probability_calibration", "calibration_error", "null_scores", "rerank_k", "query_count", "item_count", "measured_date", "measured_by", "first_probability_calibration")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    QUERY_MODALITY_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODALITY_FIELD_NUMBER: _ClassVar[int]
    HYBRID_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_ERROR_FIELD_NUMBER: _ClassVar[int]
    NULL_SCORES_FIELD_NUMBER: _ClassVar[int]
    RERANK_K_FIELD_NUMBER: _ClassVar[int]
    QUERY_COUNT_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEASURED_DATE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BY_FIELD_NUMBER: _ClassVar[int]
    FIRST_PROBABILITY_CALIBRATION_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    model_version: int
    scorer: str
    query_modality: _content_pb2.Modality
    target_modality: _content_pb2.Modality
    hybrid: bool
    probability_calibration: _model_service_pb2.ProbabilityCalibration
    calibration_error: float
    null_scores: bytes
    rerank_k: int
    query_count: int
    item_count: int
    measured_date: str
    measured_by: str
    first_probability_calibration: _model_service_pb2.ProbabilityCalibration
    def __init__(self, model_fingerprint: _Optional[str] = ..., model_version: _Optional[int] = ..., scorer: _Optional[str] = ..., query_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., target_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., hybrid: _Optional[bool] = ..., probability_calibration: _Optional[_Union[_model_service_pb2.ProbabilityCalibration, _Mapping]] = ..., calibration_error: _Optional[float] = ..., null_scores: _Optional[bytes] = ..., rerank_k: _Optional[int] = ..., query_count: _Optional[int] = ..., item_count: _Optional[int] = ..., measured_date: _Optional[str] = ..., measured_by: _Optional[str] = ..., first_probability_calibration: _Optional[_Union[_model_service_pb2.ProbabilityCalibration, _Mapping]] = ...) -> None: ...

class AliasCalibrations(_message.Message):
    __slots__ = ("calibrations",)
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    calibrations: _containers.RepeatedCompositeFieldContainer[ScoreCalibration]
    def __init__(self, calibrations: _Optional[_Iterable[_Union[ScoreCalibration, _Mapping]]] = ...) -> None: ...
