"""What the orchestrator measures of its own: stages, and how much of an index searches saw."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import Counter, Gauge, Histogram

from orchestrator_svc.coverage import MISSING_ERRORS, SearchCoverage
from tandem.chassis.metrics import LATENCY_BUCKETS_SECONDS, REGISTRY, stage_histogram
from tandem.chassis.tracing import exemplar, tracing
from tandem.contract.content import Modality

_STAGE_DURATION = stage_histogram("orchestrator")
PARTIAL_SEARCHES = Counter(
    "tandem_orchestrator_partial_searches_total",
    "Searches that some shard was missing from, once for each reason that one was.",
    ["outcome", "reason"],
    registry=REGISTRY,
)
SEARCH_COVERAGE = Histogram(
    "tandem_orchestrator_search_coverage_ratio",
    "Share of the items, or of the shards where items were not counted, that a search saw.",
    buckets=(0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999, 1.0),
    registry=REGISTRY,
)
DEGRADED_ANSWERS = Counter(
    "tandem_orchestrator_degraded_answers_total",
    "Answers that were less than was asked for, once for each way in which they were.",
    ["reason"],
    registry=REGISTRY,
)
RERANK_DEPTH = Histogram(
    "tandem_orchestrator_rerank_depth_count",
    "Candidates, from the first, that the cross-encoder read of those it was to read.",
    buckets=(0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200),
    registry=REGISTRY,
)
RERANK_STOPS = Counter(
    "tandem_orchestrator_rerank_stops_total",
    "Why reranks ended.",
    ["stop"],
    registry=REGISTRY,
)
BREAKER_STATE = Gauge(
    "tandem_orchestrator_breaker_state",
    "0 all calls go through, 1 one does to find out, 2 none does.",
    ["dependency"],
    registry=REGISTRY,
)
RETRIES = Counter(
    "tandem_orchestrator_retries_total",
    "Calls made a second time, by what became of them; over_budget were not made.",
    ["dependency", "outcome"],
    registry=REGISTRY,
)
SEARCH_DURATION = Histogram(
    "tandem_orchestrator_search_duration_seconds",
    "Wall time of the stages of searches that were answered, by what looks for what.",
    ["direction"],
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
CALL_DURATION = Histogram(
    "tandem_orchestrator_call_duration_seconds",
    "Wall time of a question to a service behind, answered or not, as the orchestrator saw it.",
    ["dependency"],
    buckets=LATENCY_BUCKETS_SECONDS,
    registry=REGISTRY,
)
for _outcome in ("answered", "refused"):
    for _error in MISSING_ERRORS:
        # A counter that first shows itself at its first count hides that count from rate().
        PARTIAL_SEARCHES.labels(_outcome, _error.reason)


def note_coverage(coverage: SearchCoverage, *, is_answered: bool) -> None:
    """Counts one search's coverage, and whether it was enough to answer."""
    SEARCH_COVERAGE.observe(coverage.share)
    for reason in {error.reason for error in coverage.missing.values()}:
        PARTIAL_SEARCHES.labels("answered" if is_answered else "refused", reason).inc()


def note_degradations(reasons: Iterable[str]) -> None:
    """Counts one final answer's."""
    for reason in reasons:
        DEGRADED_ANSWERS.labels(reason).inc()


def note_search(query: Modality, targets: Sequence[Modality], seconds: float) -> None:
    """Counts a search that was answered, by the heaviest part of its query and what it found."""
    target = targets[0].value if len(targets) == 1 else "both"
    SEARCH_DURATION.labels(f"{query.value}_to_{target}").observe(seconds, exemplar())


def note_call(dependency: str, seconds: float) -> None:
    """Counts a question to a service behind, whatever came of it."""
    CALL_DURATION.labels(dependency).observe(seconds, exemplar())


def note_rerank(stop: str, depth: int) -> None:
    """Counts one rerank's end."""
    RERANK_STOPS.labels(stop).inc()
    RERANK_DEPTH.observe(depth)


class StageLaps:
    """A search's stages, each with what went by before it, so that they add up to the whole."""

    def __init__(self) -> None:
        self._last_time = time.perf_counter()
        self.seconds: dict[str, float] = {}
        """By stage, all its rounds together."""

    def end(self, stage: str) -> float:
        """Returns the seconds since the last stage ended, and counts them to this one."""
        now = time.perf_counter()
        elapsed, self._last_time = now - self._last_time, now
        self.seconds[stage] = self.seconds.get(stage, 0.0) + elapsed
        return elapsed


@contextmanager
def timed_stage(name: str, laps: StageLaps | None = None) -> Iterator[None]:
    """Times its body as a stage, failed or not; with `laps`, from the end of the stage before."""
    start_time = time.perf_counter()
    try:
        with tracing().stage(name):
            yield
    finally:
        elapsed = laps.end(name) if laps else time.perf_counter() - start_time
        _STAGE_DURATION.labels(name).observe(elapsed, exemplar())
