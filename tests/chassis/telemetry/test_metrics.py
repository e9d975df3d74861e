"""telemetry.metrics: series that are found once."""

import pytest
from prometheus_client import CollectorRegistry

from tandem.chassis.telemetry.metrics import Histogram, kept_series


def test_a_kept_series_is_the_metrics_own() -> None:
    """So what is observed through either is in one sum."""
    registry = CollectorRegistry()
    metric = Histogram("lap_seconds", "A lap.", ["stage", "purpose"], registry=registry)
    series_of = kept_series(metric)

    series_of("read", "query").observe(2.0)
    metric.labels("read", "query").observe(3.0)
    series_of("read", "canary").observe(5.0)

    assert series_of("read", "query") is metric.labels("read", "query")
    labels = {"stage": "read", "purpose": "query"}
    assert registry.get_sample_value("lap_seconds_sum", labels) == 5.0
    assert registry.get_sample_value("lap_seconds_count", labels) == 2.0
    with pytest.raises(ValueError, match="label"):
        series_of("read")
