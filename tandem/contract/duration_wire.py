"""Spans of time between protobuf's Duration and seconds."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration


def duration_to_proto(seconds: float) -> Duration:
    """Returns the span, to the nanosecond; a clock's small step back counts as none."""
    duration = Duration()
    duration.FromNanoseconds(round(max(seconds, 0.0) * 1e9))
    return duration


def duration_from_proto(duration: Duration) -> float:
    """Returns seconds."""
    return duration.seconds + duration.nanos * 1e-9
