"""Converts between protobuf's Duration and seconds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration


def duration_to_proto(seconds: float) -> Duration:
    """Returns the Duration, to the nanosecond; a negative time counts as zero."""
    duration = Duration()
    duration.FromNanoseconds(round(max(seconds, 0.0) * 1e9))
    return duration


def duration_from_proto(duration: Duration) -> float:
    return duration.seconds + duration.nanos * 1e-9
