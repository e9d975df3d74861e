"""The orchestrator's metrics, and the timing of its stages."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tandem.chassis.telemetry.metrics import (
    LATENCY_BUCKETS_SECONDS,
    Counter,
    Gauge,
    Histogram,
    kept_series,
    stage_histogram,
)
from tandem.chassis.telemetry.tracing import exemplar, tracing
from tandem.contract.content import Modality
from tandem.contract.search.answer import Abstention, StageSeconds
from tandem.contract.search.answer_names import (
    DegradationKind,
    NeighbourStopReason,
    RerankStopReason,
)
from tandem.contract.search.score_calibration import ScoreKind
from tandem.search.coverage import MISSING_ERRORS, SearchCoverage
from tandem.stages.aliases import AliasRecord

_STAGE_DURATION_OF = kept_series(stage_histogram("orchestrator"))
PARTIAL_SEARCHES = Counter(
    "tandem_orchestrator_partial_searches_total",
    "Searches with missing shards, once for each reason a shard was missing.",
    ["outcome", "reason"],
)
SEARCH_COVERAGE = Histogram(
    "tandem_orchestrator_search_coverage_ratio",
    "Share that a search saw of the items or, if those were not counted, of the shards.",
    buckets=(0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999, 1.0),
)
DEGRADED_ANSWERS = Counter(
    "tandem_orchestrator_degraded_answers_total",
    "Degraded answers, once for each degradation.",
    ["reason"],
)
PROMISED_ANSWERS = Counter(
    "tandem_orchestrator_promised_answers_total",
    "Answers with a false-answer rate, of indexes that were calibrated, by whether they abstained.",
    ["index_id", "direction", "outcome"],
)
RERANK_DEPTH = Histogram(
    "tandem_orchestrator_rerank_depth_count",
    "Candidates, from the first, that the cross-encoder scored in a rerank.",
    buckets=(0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200),
)
RERANK_STOPS = Counter(
    "tandem_orchestrator_rerank_stops_total",
    "Why reranks ended.",
    ["stop"],
)
NEIGHBOUR_STOPS = Counter(
    "tandem_orchestrator_neighbour_stops_total",
    "Why orders by neighbours ended, of searches that asked for one.",
    ["stop"],
)
SHADOW_SEARCHES = Counter(
    "tandem_orchestrator_shadow_searches_total",
    "Searches repeated in the generation before, for an hour after a promotion, by what that gave.",
    ["outcome"],
)
SHADOW_ROLLBACKS = Counter(
    "tandem_orchestrator_shadow_rollbacks_total",
    "Promotions that shadow searches took back, by what was worse.",
    ["reason"],
)
SHADOW_OVERLAP = Histogram(
    "tandem_orchestrator_shadow_overlap_ratio",
    "Share of the returned items that both generations have.",
    buckets=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.9999, 1.0),
)
BREAKER_STATE = Gauge(
    "tandem_orchestrator_breaker_state",
    "State of the circuit breaker: 0 closed, 1 probing, 2 open.",
    ["dependency"],
)
RETRIES = Counter(
    "tandem_orchestrator_retries_total",
    "Retried calls, by outcome; over_budget were not made.",
    ["dependency", "outcome"],
)
ALIAS_AGE = Gauge(
    "tandem_orchestrator_alias_age_seconds",
    "Since when the aliases are known that searches go by: the last read of shard 0.",
)
GENERATION_ANSWERS = Counter(
    "tandem_orchestrator_generation_answers_total",
    "Answers to searches of aliases that have a record, by the generation that gave them.",
    ["alias", "index_id"],
)
SEARCH_DURATION = Histogram(
    "tandem_orchestrator_search_duration_seconds",
    "Wall time of answered searches, by the modalities of query and items.",
    ["direction"],
    buckets=LATENCY_BUCKETS_SECONDS,
)
CALL_DURATION = Histogram(
    "tandem_orchestrator_call_duration_seconds",
    "Wall time of a call to a downstream service, successful or not, as the orchestrator saw it.",
    ["dependency"],
    buckets=LATENCY_BUCKETS_SECONDS,
)
_CALL_DURATION_OF = kept_series(CALL_DURATION)
_GENERATION_ANSWERS_OF = kept_series(GENERATION_ANSWERS)
_SEARCH_DURATION_OF = kept_series(SEARCH_DURATION)
_RERANK_STOPS_OF = kept_series(RERANK_STOPS)
for _outcome in ("answered", "refused"):
    for _error in MISSING_ERRORS:
        # A counter that first appears at its first count hides that count from rate().
        PARTIAL_SEARCHES.labels(_outcome, _error.reason)


def note_coverage(coverage: SearchCoverage, *, is_answered: bool) -> None:
    """Records one search's coverage, and whether it was enough to answer."""
    SEARCH_COVERAGE.observe(coverage.share)
    for reason in {error.reason for error in coverage.missing.values()}:
        PARTIAL_SEARCHES.labels("answered" if is_answered else "refused", reason).inc()


def note_degradations(degradations: Iterable[DegradationKind]) -> None:
    """Counts the degradations of one final answer."""
    for each in degradations:
        DEGRADED_ANSWERS.labels(each.lower()).inc()


def note_promise(index_id: str, kind: ScoreKind, abstention: Abstention) -> None:
    """Counts an answer that may abstain; an administrator calibrated each index that has one."""
    direction = f"{kind.query_modality.value}_to_{kind.target_modality.value}"
    outcome = "abstained" if abstention.abstained else "answered"
    PROMISED_ANSWERS.labels(index_id, direction, outcome).inc()


def note_search(query: Modality, targets: Sequence[Modality], seconds: float) -> None:
    """Records an answered search, by the modality of its query's heaviest part and of its items."""
    target = targets[0].value if len(targets) == 1 else "both"
    _SEARCH_DURATION_OF(f"{query.value}_to_{target}").observe(seconds, exemplar())


def note_generation(record: AliasRecord, index_id: str) -> None:
    """Counts an answer of the generation; an administrator made each that there is."""
    if record.has(index_id) and record.revision:
        _GENERATION_ANSWERS_OF(record.alias, index_id).inc()


def note_call(dependency: str, seconds: float) -> None:
    """Records a call to a downstream service, successful or not."""
    _CALL_DURATION_OF(dependency).observe(seconds, exemplar())


def note_rerank(stop: RerankStopReason, depth: int) -> None:
    """Records why a rerank stopped, and at which depth."""
    _RERANK_STOPS_OF(stop.lower()).inc()
    RERANK_DEPTH.observe(depth)


def note_neighbours(stop: NeighbourStopReason) -> None:
    """Records why an order by neighbours ended."""
    NEIGHBOUR_STOPS.labels(stop.lower()).inc()


class StageLaps:
    """Times a search's stages, each from the end of the last, so that they add up to the whole."""

    def __init__(self) -> None:
        self._last_time = time.perf_counter()
        self.seconds: dict[str, float] = {}
        """By stage, over all its rounds."""

    def end(self, stage: str) -> float:
        """Returns the seconds since the last stage ended, and adds them to this one."""
        now = time.perf_counter()
        elapsed, self._last_time = now - self._last_time, now
        self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed
        return elapsed

    def stage_seconds(self) -> StageSeconds:
        """Returns the seconds of each stage, 0 for those that were not run, and of all."""
        return StageSeconds(
            **{name: self.seconds.get(name, 0.0) for name in _STAGES},
            total=sum(self.seconds.values()),
        )


_STAGES = ("encode", "retrieve", "rerank", "neighbours", "rank", "fetch")


@contextmanager
def timed_stage(name: str, laps: StageLaps | None = None) -> Iterator[None]:
    """Times its body as a stage, failed or not; with `laps`, from the end of the stage before."""
    start_time = time.perf_counter()
    try:
        with tracing().stage(name):
            yield
    finally:
        elapsed = laps.end(name) if laps else time.perf_counter() - start_time
        _STAGE_DURATION_OF(name).observe(elapsed, exemplar())
