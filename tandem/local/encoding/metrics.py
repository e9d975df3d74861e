"""Declares the metrics of encoder_svc."""

from collections.abc import Sequence

from tandem.chassis.telemetry.metrics import REGISTRY, Counter, kept_series, stage_histogram
from tandem.chassis.telemetry.tracing import exemplar
from tandem.contract.content import Encoding, TruncationPolicy
from tandem.errors import TandemError

_STAGE_DURATION_OF = kept_series(stage_histogram("encoder"))
TRUNCATED_TEXTS = Counter(
    "tandem_encoder_truncated_texts_total",
    "Texts that were truncated, by truncation policy.",
    ["policy"],
    registry=REGISTRY,
)
_TRUNCATED_TEXTS_OF = kept_series(TRUNCATED_TEXTS)


def observe_stage(stage: str, seconds: float) -> None:
    """Observes the time of "preprocess" or "inference" for one call."""
    _STAGE_DURATION_OF(stage).observe(seconds, exemplar())


def count_truncated_texts(
    outcomes: Sequence[Encoding | TandemError], policy: TruncationPolicy
) -> None:
    """Counts the truncated texts among the outcomes."""
    uses = (outcome.text_use for outcome in outcomes if isinstance(outcome, Encoding))
    _TRUNCATED_TEXTS_OF(policy.value).inc(sum(use is not None and use.is_truncated for use in uses))
