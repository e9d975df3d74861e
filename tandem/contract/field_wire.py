"""Converts the fields that many messages have: durations, and modalities."""

from google.protobuf.duration_pb2 import Duration

from tandem.contract.modality import Modality
from tandem.contract.record_wire import Field, by_name
from tandem.v1 import content_pb2


def duration_to_proto(seconds: float) -> Duration:
    """Returns the Duration, to the nanosecond; a negative time counts as zero."""
    duration = Duration()
    duration.FromNanoseconds(round(max(seconds, 0.0) * 1e9))
    return duration


def duration_from_proto(duration: Duration) -> float:
    return duration.seconds + duration.nanos * 1e-9


DURATION_WIRE = Field(duration_to_proto, duration_from_proto)

MODALITY_WIRE = by_name(Modality, content_pb2.Modality, "MODALITY_")
"""Reads one that is unspecified or unknown as None."""
