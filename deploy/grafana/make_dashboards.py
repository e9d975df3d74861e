"""Writes dashboards/*.json: python deploy/grafana/make_dashboards.py.

The JSON is what Grafana reads and what is committed; a test holds it to this program, and every
expression to metrics that a running Tandem has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "dashboards"

_SEARCH = 'service="orchestrator",method=~"SearchItems|StreamSearchItems|BatchSearchItems"'
_DOORS = 'service=~"gateway|orchestrator"'
_RATE = "[$__rate_interval]"
_HITS = f"sum by (cache) (rate(tandem_cache_hits_total{_RATE}))"
_MISSES = f"sum by (cache) (rate(tandem_cache_misses_total{_RATE}))"
_ENCODINGS = '{cache="query_encodings"}'
_STAGES = "tandem:stage_duration_seconds:{}"
_OF_SEARCHES = '{stage!~"ingest_.*"}'
_HEIGHT = 8
_WIDTH = 12


@dataclass(frozen=True)
class Panel:
    """A graph of expressions, each with its legend; or of one number."""

    title: str
    unit: str
    lines: Sequence[tuple[str, str]]
    description: str = ""
    kind: str = "timeseries"
    maximum: float | None = None


@dataclass(frozen=True)
class Dashboard:
    """Panels, two in a row."""

    name: str
    title: str
    panels: Sequence[Panel] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """Returns what Grafana imports."""
        return {
            "uid": f"tandem-{self.name}",
            "title": f"Tandem: {self.title}",
            "tags": ["tandem"],
            "timezone": "utc",
            "schemaVersion": 39,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {
                "list": [
                    {
                        "name": "datasource",
                        "label": "Data source",
                        "type": "datasource",
                        "query": "prometheus",
                        "current": {},
                    }
                ]
            },
            "links": [
                {"title": "Tandem", "type": "dashboards", "tags": ["tandem"], "asDropdown": True}
            ],
            "panels": [_panel(number, panel) for number, panel in enumerate(self.panels)],
        }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.maximum is not None:
        defaults["max"] = panel.maximum
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": source,
        "gridPos": {
            "x": _WIDTH * (number % 2),
            "y": _HEIGHT * (number // 2),
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": defaults, "overrides": _colours(panel)},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["last"]}}
        if panel.kind == "timeseries"
        else {"reduceOptions": {"calcs": ["lastNotNull"]}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": source,
                "expr": expression,
                "legendFormat": legend,
                "exemplar": "_bucket" in expression,
            }
            for place, (expression, legend) in enumerate(panel.lines)
        ],
    }


# By what an operator must look at: a service's faults, what it sheds, and what callers did.
_COLOUR_OF_CODES = {
    "OK": "green",
    "UNAVAILABLE|INTERNAL|UNKNOWN|DATA_LOSS|UNIMPLEMENTED": "red",
    "DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED": "orange",
    "CANCELLED|[A-Z_]*ARGUMENT|[A-Z_]*PRECONDITION|NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED": (
        "blue"
    ),
}


def _colours(panel: Panel) -> list[dict[str, Any]]:
    """Returns a fixed colour for each code, which Grafana would give by the order of lines."""
    if not any("{{code}}" in legend for _, legend in panel.lines):
        return []
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^| )({codes})$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for codes, colour in _COLOUR_OF_CODES.items()
    ]


def _quantiles(
    metric: str, by: str = "", where: str = "", only: Sequence[float] = (0.5, 0.95, 0.99)
) -> list[tuple[str, str]]:
    """Returns p50, p95 and p99 of a histogram, or some of these, by labels where given."""
    labels = f"le, {by}" if by else "le"
    legend = f" {_legend(by)}" if by else ""
    return [
        (
            f"histogram_quantile({quantile}, sum by ({labels}) "
            f"(rate({metric}_bucket{where}{_RATE})))",
            f"p{round(quantile * 100)}{legend}",
        )
        for quantile in only
    ]


def _median_and_tail(metric: str) -> list[tuple[str, str]]:
    """Returns p50 and p99 of each stage: with p95 as well, the lines could not be distinguished."""
    return _quantiles(metric, "stage", only=(0.5, 0.99))


def _rate(metric: str, by: str, where: str = "") -> list[tuple[str, str]]:
    """Returns how much a second, by labels."""
    return _now(f"rate({metric}{where}{_RATE})", by)


def _now(metric: str, by: str, how: str = "sum") -> list[tuple[str, str]]:
    """Returns an expression's sum, or another aggregate, by labels."""
    return [(f"{how} by ({by}) ({metric})", _legend(by))]


def _of_shards(metric: str, by: str = "") -> list[tuple[str, str]]:
    """Returns an expression of each shard, also by a label where given."""
    return [(metric, _legend(f"{by}, instance, shard" if by else "instance, shard"))]


def _legend(by: str) -> str:
    return " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))


def _share(part: str, whole: str, by: str) -> list[tuple[str, str]]:
    ratio = f"sum by ({by}) (rate({part}{_RATE})) / sum by ({by}) (rate({whole}{_RATE}))"
    return [(ratio, _legend(by))]


def _padding(service: str) -> tuple[str, str]:
    where = f'{{service="{service}"}}{_RATE}'
    return (
        f"1 - sum(rate(tandem_inference_tokens_total{where}))"
        f" / sum(rate(tandem_inference_padded_tokens_total{where}))",
        "share of what is computed",
    )


def _in_triton(what: str) -> str:
    return f"sum by (service) (rate(tandem_inference_triton_{what}_seconds_total{_RATE}))"


OVERVIEW = Dashboard(
    "overview",
    "overview",
    [
        Panel(
            "Searches",
            "reqps",
            _rate("tandem_rpc_duration_seconds_count", "code", f"{{{_SEARCH}}}"),
        ),
        Panel(
            "Search latency", "s", _quantiles("tandem_rpc_duration_seconds", where=f"{{{_SEARCH}}}")
        ),
        Panel(
            "Error budget burn",
            "none",
            [
                ("tandem:search_errors:ratio_rate1h / 0.001", "errors, 1 h"),
                ("tandem:search_errors:ratio_rate6h / 0.001", "errors, 6 h"),
                ("tandem:search_slow:ratio_rate1h / 0.01", "slow, 1 h"),
                ("tandem:search_slow:ratio_rate6h / 0.01", "slow, 6 h"),
            ],
            "1 spends a month's budget in a month: 0.1 % of searches failed, 1 % slow.",
        ),
        Panel(
            "Search latency by direction, p95",
            "s",
            _quantiles("tandem_orchestrator_search_duration_seconds", "direction", only=(0.95,)),
            "Of searches that were answered: from what the query is made of to what it looks for.",
        ),
        Panel(
            "Downstream call latency, p95",
            "s",
            [("tandem:call_duration_seconds:p95", "{{dependency}}")],
            "Each shard by itself, as the orchestrator waits for it.",
        ),
        *(
            Panel(f"Stages, {p}", "s", [(_STAGES.format(p) + _OF_SEARCHES, "{{stage}}")])
            for p in ("p50", "p95", "p99")
        ),
        Panel(
            "Stages of ingest, p95",
            "s",
            [(_STAGES.format("p95") + '{stage=~"ingest_.*"}', "{{stage}}")],
            "Of whole batches, so they take far longer than those of a search.",
        ),
        Panel(
            "Degraded responses",
            "percentunit",
            [("tandem:degraded_answers:ratio_rate5m", "{{reason}}")],
        ),
        Panel(
            "Share of the index searched",
            "percentunit",
            [
                (
                    f"sum(rate(tandem_orchestrator_search_coverage_ratio_sum{_RATE}))"
                    f" / sum(rate(tandem_orchestrator_search_coverage_ratio_count{_RATE}))",
                    "mean",
                )
            ],
            maximum=1,
        ),
        Panel("Errors by reason", "reqps", _rate("tandem_rpc_refusals_total", "service, reason")),
        Panel("Ready", "none", _now("tandem_serving", "service, instance", "min")),
        Panel(
            "Circuit breakers",
            "none",
            _now("tandem_orchestrator_breaker_state", "dependency", "max"),
            "0 closed, 1 trying, 2 open.",
            maximum=2,
        ),
        Panel("Retries", "reqps", _rate("tandem_orchestrator_retries_total", "outcome")),
        Panel(
            "Requests",
            "reqps",
            _rate("tandem_rpc_duration_seconds_count", "service, code", f"{{{_DOORS}}}"),
            "By gRPC at the orchestrator, those of the gateway among them, and by HTTP.",
        ),
        Panel(
            "Request latency",
            "s",
            _quantiles("tandem_rpc_duration_seconds", "service", f"{{{_DOORS}}}", only=(0.5, 0.95)),
            "What the gateway adds to the orchestrator's time, where callers use HTTP alone.",
        ),
    ],
)

ENCODER = Dashboard(
    "encoder",
    "encoder",
    [
        Panel(
            "Calls",
            "reqps",
            _rate("tandem_rpc_duration_seconds_count", "code", '{service="encoder"}'),
        ),
        Panel(
            "Latency", "s", _quantiles("tandem_rpc_duration_seconds", where='{service="encoder"}')
        ),
        Panel(
            "Stages, p50 and p99", "s", _median_and_tail("tandem_encoder_stage_duration_seconds")
        ),
        Panel("Truncated texts", "reqps", _rate("tandem_encoder_truncated_texts_total", "policy")),
        Panel("Padding", "percentunit", [_padding("encoder")], maximum=1),
        Panel(
            "Encoding cache hit ratio",
            "reqps",
            [
                (f"sum(rate(tandem_cache_hits_total{_ENCODINGS}{_RATE}))", "found"),
                (f"sum(rate(tandem_cache_misses_total{_ENCODINGS}{_RATE}))", "computed"),
            ],
        ),
    ],
)

INDEX = Dashboard(
    "index",
    "index",
    [
        Panel("Searches by strategy", "reqps", _rate("tandem_index_searches_total", "strategy")),
        Panel("Stages, p50 and p99", "s", _median_and_tail("tandem_index_stage_duration_seconds")),
        Panel(
            "Share of hybrid searches",
            "percentunit",
            [
                (
                    f"sum by (state) (rate(tandem_index_keyword_searches_total{_RATE}))"
                    " / ignoring (state) group_left ()"
                    f" sum(rate(tandem_index_searches_total{_RATE}))",
                    "{{state}}",
                )
            ],
            "Of hybrid searches, by what became of their words: searched, disabled where the shard "
            "keeps none, being_built after a start.",
            maximum=1,
        ),
        Panel(
            "Keyword search latency, p50, p95 and p99",
            "s",
            _quantiles("tandem_index_stage_duration_seconds", where='{stage="keywords"}'),
            "A part of the stage search. The first after a write waits for its commit.",
        ),
        Panel(
            "Live recall",
            "percentunit",
            _of_shards("tandem_index_live_recall_ratio", "direction"),
            "Of sampled searches of users, done again exactly.",
            maximum=1,
        ),
        Panel(
            "Searches measured for recall",
            "none",
            _of_shards("tandem_index_live_recall_searches", "direction"),
        ),
        Panel(
            "List imbalance", "none", _of_shards("tandem_index_list_imbalance_ratio", "modality")
        ),
        Panel(
            "Rebuilds requested",
            "none",
            _now("increase(tandem_index_rebuild_requests_total[1h])", "cause, instance"),
        ),
        Panel("Items", "none", _now("tandem_index_items", "modality, instance, shard")),
        Panel(
            "Store size",
            "bytes",
            _of_shards("tandem_index_store_used_bytes"),
            "What was ever used; pages freed since are used again first.",
        ),
        Panel("Free disk space", "bytes", _of_shards("tandem_index_disk_free_bytes")),
        Panel(
            "Share of the store's limit",
            "percentunit",
            _of_shards("tandem_index_store_used_bytes / tandem_index_store_limit_bytes"),
            maximum=1,
        ),
        Panel(
            "Oldest reader",
            "s",
            _of_shards("tandem_index_oldest_reader_age_seconds"),
            "How long pages freed since have not been used again: the store grows meanwhile.",
        ),
        Panel("Queued writes", "none", _of_shards("tandem_index_queued_write_count")),
        Panel("Age of the newest commit", "s", _of_shards("tandem_index_commit_age_seconds")),
        Panel("Records a commit", "none", _quantiles("tandem_index_commit_records")),
        Panel(
            "Background work, p95",
            "s",
            _quantiles("tandem_index_maintenance_duration_seconds", "work", only=(0.95,)),
        ),
        Panel(
            "Newest snapshot",
            "none",
            _of_shards("tandem_index_snapshot_sequence"),
            "Where the change log stood.",
        ),
        Panel("Age of the newest snapshot", "s", _of_shards("tandem_index_snapshot_age_seconds")),
        Panel(
            "Changes since the newest snapshot",
            "none",
            _of_shards("tandem_index_unsaved_change_count"),
            "What a start would read from the store.",
        ),
        Panel(
            "Corruption",
            "none",
            [
                ("tandem_index_shard_corrupt", "store {{instance}} {{shard}}"),
                ("tandem_index_corrupt_items_total", "items {{instance}}"),
                ("tandem_index_snapshots_refused_total", "snapshots {{instance}}"),
                ("increase(tandem_index_maintenance_failures_total[1h])", "work {{instance}}"),
            ],
        ),
    ],
)

RERANK = Dashboard(
    "rerank",
    "rerank",
    [
        Panel("Pairs scored", "none", _rate("tandem_rerank_pairs_scored_total", "instance")),
        Panel("Stages, p50 and p99", "s", _median_and_tail("tandem_rerank_stage_duration_seconds")),
        Panel(
            "Rerank depth",
            "none",
            _quantiles("tandem_orchestrator_rerank_depth_count"),
            "Candidates that the cross-encoder read of a search.",
        ),
        Panel(
            "Why reranks ended", "reqps", _rate("tandem_orchestrator_rerank_stops_total", "stop")
        ),
        Panel(
            "Why orders by neighbours ended",
            "reqps",
            _rate("tandem_orchestrator_neighbour_stops_total", "stop"),
        ),
        Panel(
            "Cache hit ratio",
            "percentunit",
            [(f"{_HITS} / ({_HITS} + {_MISSES})", "{{cache}}")],
            maximum=1,
        ),
        Panel(
            "Cache size",
            "bytes",
            [
                ("sum by (cache, instance) (tandem_cache_bytes)", "{{cache}} {{instance}}"),
                (
                    "sum by (cache, instance) (tandem_cache_limit_bytes)",
                    "limit {{cache}} {{instance}}",
                ),
            ],
        ),
        Panel("Padding", "percentunit", [_padding("rerank")], maximum=1),
        Panel("Cache evictions", "reqps", _rate("tandem_cache_evictions_total", "cache")),
        Panel("Cached values", "none", _now("tandem_cache_entry_count", "cache")),
    ],
)

TRITON = Dashboard(
    "triton",
    "Triton",
    [
        Panel("Requests", "reqps", _rate("nv_inference_request_success", "model")),
        Panel("Failures", "reqps", _rate("nv_inference_request_failure", "model")),
        Panel(
            "Request latency, p95",
            "s",
            _quantiles("tandem_triton_request_duration_seconds", "model, purpose", only=(0.95,)),
            "As its callers saw it, over all of Triton's instances and replicas.",
        ),
        Panel(
            "Queue time, p95",
            "s",
            _quantiles("tandem_triton_queue_duration_seconds", "model, purpose", only=(0.95,)),
        ),
        Panel(
            "Compute time, p95",
            "s",
            _quantiles("tandem_triton_compute_duration_seconds", "model, version", only=(0.95,)),
            "By model and version, for the whole batch that a request went with.",
        ),
        Panel(
            "Batch size of requests, p95",
            "none",
            _quantiles("tandem_triton_request_rows", "model, purpose", only=(0.95,)),
            "As sent; Triton puts requests together.",
        ),
        Panel(
            "Failures by error",
            "reqps",
            _rate("tandem_triton_failures_total", "model, reason"),
            "Canaries too.",
        ),
        Panel(
            "Batch size of executions",
            "none",
            _share("nv_inference_count", "nv_inference_exec_count", "model"),
            "What dynamic batching makes of requests.",
        ),
        Panel("Queued requests", "none", _now("nv_inference_pending_request_count", "model")),
        Panel(
            "Requests in flight",
            "none",
            [
                (_in_triton("queue"), "waiting, {{service}}"),
                (_in_triton("compute"), "computing, {{service}}"),
            ],
            "As those who call Triton count it: seconds a second, so how many at a time.",
        ),
        Panel(
            "Parallel executions",
            "none",
            [
                (
                    f"sum by (model) (rate(nv_inference_compute_infer_duration_us{_RATE})) / 1e6",
                    "{{model}}",
                )
            ],
            "As Triton counts it.",
        ),
    ],
)

CAPACITY = Dashboard(
    "capacity",
    "capacity",
    [
        Panel("Calls in flight", "none", _now("tandem_rpc_inflight_count", "service, instance")),
        Panel("Bytes in flight", "bytes", _now("tandem_rpc_inflight_bytes", "service, instance")),
        Panel(
            "Share of the call limit in use",
            "percentunit",
            [
                (
                    "max by (service, instance) (tandem_rpc_inflight_count)"
                    " / max by (service, instance)"
                    ' (tandem_admission_limit{limit="count"})',
                    "{{service}} {{instance}}",
                )
            ],
        ),
        Panel(
            "Rejected requests", "reqps", _rate("tandem_admission_refused_total", "service, limit")
        ),
        Panel("CPU", "none", _rate("process_cpu_seconds_total", "instance"), "Cores."),
        Panel("Resident memory", "bytes", _now("process_resident_memory_bytes", "instance")),
        Panel("Open files", "none", _now("process_open_fds", "instance")),
        Panel("Tokens", "none", _rate("tandem_inference_tokens_total", "service"), "A second."),
        Panel(
            "Versions",
            "none",
            [
                ("count by (version, service) (tandem_build_info)", "{{service}} {{version}}"),
                (
                    "count by (fingerprint, service) (tandem_model_info)",
                    "{{service}} model {{fingerprint}}",
                ),
                (
                    "count by (shard, shard_count, service) (tandem_shard_info)",
                    "{{service}} shard {{shard}} of {{shard_count}}",
                ),
            ],
            "Processes of each. More than one model is a rollout, or a mistake.",
        ),
    ],
)

DASHBOARDS = (OVERVIEW, ENCODER, INDEX, RERANK, TRITON, CAPACITY)


def text_of(dashboard: Dashboard) -> str:
    """Returns a dashboard's file."""
    return json.dumps(dashboard.json(), indent=2) + "\n"


def main() -> None:
    """Writes them all."""
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(text_of(dashboard))


if __name__ == "__main__":
    main()
