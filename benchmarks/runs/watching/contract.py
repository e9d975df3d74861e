"""What dashboards, rules, autoscalers and documents say there is, held to a running Prometheus.

What is rightly missing is in the lists below, each with its reason. An entry that is no longer
needed is reported like one that is missing.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.runs.watching.prometheus_api import PrometheusApi, QueryRefused

_ROOT = Path(__file__).parents[3]
_DASHBOARDS = _ROOT / "deploy" / "grafana" / "dashboards"
_RULES = _ROOT / "deploy" / "prometheus" / "rules"
_KUBERNETES = _ROOT / "deploy" / "kubernetes"
_DOCUMENTS = (_ROOT / "docs" / "metrics.md", _ROOT / "docs" / "monitoring.md")

_NO_ENGINE = "the run has no outside engine"
_NO_BACKUP = "the run makes no backup by call"
EMPTY_EXPRESSIONS: Mapping[str, str] = {
    "engine: ": _NO_ENGINE,
    "index: Age of the newest backup: ": _NO_BACKUP,
}
"""Why panels' expressions have no data in the run, by how "dashboard: panel: legend" begins."""
UNSEEN_METRICS: Mapping[str, str] = {
    "tandem_engine_call_duration_seconds": _NO_ENGINE,
    "tandem_engine_calls_inflight_count": _NO_ENGINE,
    "tandem_engine_standby_lag_bytes": _NO_ENGINE,
    "tandem_index_backup_time_seconds": _NO_BACKUP,
}
"""Why a documented metric is not in any scrape of the run, by its name."""

# What Prometheus makes itself, and its exposition adds: the time that a counter began.
_OWN = re.compile(r"(up|ALERTS|ALERTS_FOR_STATE|scrape_\w+|\w+_created)")
_NAME = re.compile(r"\b(tandem[:_][\w:]+|process_\w+|nv_\w+)\b")
_RECORD = re.compile(r"^ +- record: (\S+)$", re.M)
_SERIES_SUFFIX = re.compile(r"_(bucket|sum|count)$")


@dataclass(frozen=True, slots=True)
class Expression:
    """A query, and where it stands."""

    where: str
    text: str


def dashboard_expressions() -> Iterator[Expression]:
    """Yields every panel's, as "dashboard: panel: legend"."""
    for path in sorted(_DASHBOARDS.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                where = f"{path.stem}: {panel['title']}: {target['legendFormat']}"
                yield Expression(where, target["expr"])


def names_asked_for() -> dict[str, set[str]]:
    """Returns the names of metrics that something goes by, by where they stand."""
    asked: dict[str, set[str]] = {}
    for expression in dashboard_expressions():
        asked.setdefault(expression.where, set()).update(_names(expression.text))
    for path in [*_RULES.glob("*.yml"), *_KUBERNETES.rglob("*.y*ml")]:
        if names := _names(path.read_text()):
            asked[str(path.relative_to(_ROOT))] = names
    for path in _DOCUMENTS:
        asked[str(path.relative_to(_ROOT))] = documented_metrics(path)
    return asked


def documented_metrics(path: Path) -> set[str]:
    """Returns the first cells of a document's tables of metrics."""
    return set(re.findall(r"^\| `((?:tandem|process|nv)_\w+)`", path.read_text(), re.M))


def missing_names(asked: Mapping[str, Collection[str]], live: Collection[str]) -> list[str]:
    """Returns "name (where)" for what is requested and in no scrape, nor excused."""
    known = set(live) | {_SERIES_SUFFIX.sub("", name) for name in live}
    return sorted(
        f"{name} ({where})"
        for where, names in asked.items()
        for name in names
        if not {name, _SERIES_SUFFIX.sub("", name)} & known and name not in UNSEEN_METRICS
    )


def undocumented_names(live: Collection[str]) -> list[str]:
    """Returns what is scraped, and in no document and no rule."""
    recorded = {name for path in _RULES.glob("*.yml") for name in _RECORD.findall(path.read_text())}
    documented = recorded.union(*(documented_metrics(path) for path in _DOCUMENTS))
    return sorted(
        name
        for name in live
        if not _OWN.fullmatch(name)
        and name not in documented
        and _SERIES_SUFFIX.sub("", name) not in documented
    )


def empty_expressions(
    api: PrometheusApi,
    expressions: Collection[Expression],
    start_time: float,
    end_time: float,
    rate_seconds: float,
) -> list[str]:
    """Returns where an expression gave no number at any time, or is refused."""
    empty = []
    for each in expressions:
        text = each.text.replace("$__rate_interval", f"{rate_seconds:.0f}s")
        try:
            series = api.range(text, start_time, end_time)
        except QueryRefused as error:
            empty.append(f"{each.where}: {error}")
            continue
        if not series:
            empty.append(each.where)
    return empty


def unexcused(empty: Collection[str]) -> list[str]:
    """Returns the empty expressions that the list does not explain."""
    return [where for where in empty if not where.startswith(tuple(EMPTY_EXPRESSIONS))]


def idle_excuses(live: Collection[str], empty: Collection[str]) -> list[str]:
    """Returns entries of the lists that nothing needs, given all empty expressions."""
    return sorted(
        [name for name in UNSEEN_METRICS if name in live]
        + [
            start
            for start in EMPTY_EXPRESSIONS
            if not any(each.startswith(start) for each in empty)
        ]
    )


def _names(text: str) -> set[str]:
    # What is within quotes is a label's value, but in a query of the adapter's, which is a name.
    bare = re.sub(r'"[^"]*"', '""', re.sub(r'__name__=~"([^"]*)"', r"\1", text))
    return {name for name in _NAME.findall(bare) if not name.endswith("_")}
