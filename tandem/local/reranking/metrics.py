"""Declares the metrics of rerank_svc."""

from tandem.chassis.telemetry.metrics import Counter, kept_series, stage_histogram
from tandem.chassis.telemetry.model_metrics import count_inference
from tandem.chassis.telemetry.tracing import exemplar
from tandem.contract.inference_cost import InferenceCost

_STAGE_DURATION_OF = kept_series(stage_histogram("rerank"))
_PAIRS_SCORED = Counter(
    "tandem_rerank_pairs_scored_total",
    "(query, candidate) pairs that the cross-encoder scored.",
)


def observe_stage(stage: str, seconds: float) -> None:
    """Observes the time of "read", "inference" or "graph" for one call."""
    _STAGE_DURATION_OF(stage).observe(seconds, exemplar())


def count_cost(cost: InferenceCost) -> None:
    """Counts the inference of one call."""
    _PAIRS_SCORED.inc(cost.pair_count)
    count_inference("rerank", cost)
