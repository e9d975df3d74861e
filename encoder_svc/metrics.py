"""What encoder_svc measures of its own."""

from tandem.chassis.metrics import stage_histogram
from tandem.chassis.tracing import exemplar


def observe_stage(stage: str, seconds: float) -> None:
    """Notes how long "preprocess" or "inference" took for one call."""
    stage_histogram("encoder").labels(stage).observe(seconds, exemplar())
