"""What encoder_svc measures of its own."""

from collections.abc import Sequence

from prometheus_client import Counter

from tandem.chassis.metrics import REGISTRY, stage_histogram
from tandem.chassis.tracing import exemplar
from tandem.contract.content import Encoding, TruncationPolicy
from tandem.errors import TandemError

_STAGE_DURATION = stage_histogram("encoder")
TRUNCATED_TEXTS = Counter(
    "tandem_encoder_truncated_texts_total",
    "Texts of which the model read only a part, by the policy that let it.",
    ["policy"],
    registry=REGISTRY,
)


def observe_stage(stage: str, seconds: float) -> None:
    """Notes how long "preprocess" or "inference" took for one call."""
    _STAGE_DURATION.labels(stage).observe(seconds, exemplar())


def count_truncated_texts(
    outcomes: Sequence[Encoding | TandemError], policy: TruncationPolicy
) -> None:
    """Counts the texts among the outcomes that were read in part."""
    uses = (outcome.text_use for outcome in outcomes if isinstance(outcome, Encoding))
    TRUNCATED_TEXTS.labels(policy.value).inc(
        sum(use is not None and use.is_truncated for use in uses)
    )
