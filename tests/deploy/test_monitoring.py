"""Dashboards, rules and alerts speak of metrics that there are, and of each other."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tandem.stack.prometheus import JOB as LOCAL_JOB
from tests.support.deploy.rendered import of_kind, rendered

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
RULE_TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
SERVICES = ("orchestrator", "encoder", "index", "rerank", "gateway")
# Prometheus's own, and Triton's, which tests/system compares with a running server.
FOREIGN = re.compile(r"(up|ALERTS|nv_\w+)")
NAME = re.compile(r"\b(tandem[:_][\w:]+|process_\w+|nv_\w+)\b")
SUFFIX = re.compile(r"_(bucket|sum|count|info)$")


def table(service: str) -> str:
    """Returns what a service says of its metrics."""
    command = [sys.executable, "-m", f"{service}_svc", "--metrics"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


# On one worker: they share the tables, which take a process each.
of_tables = pytest.mark.xdist_group("metric-tables")


@pytest.fixture(scope="module")
def tables() -> dict[str, str]:
    return {service: table(service) for service in SERVICES}


@pytest.fixture(scope="module")
def metrics(tables: dict[str, str]) -> set[str]:
    """Names of all metrics of all services, and of all recorded ones."""
    names = {name for text in tables.values() for name in re.findall(r"^\| `(\w+)`", text, re.M)}
    return names | {rule["record"] for rule in rules() if "record" in rule}


def rules() -> Iterator[dict[str, Any]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def expressions() -> Iterator[tuple[str, str]]:
    """Yields every expression with where it stands."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


def unknown(expression: str, known: set[str]) -> list[str]:
    """Returns the names in an expression that no process has."""
    # What is within quotes is a label's value.
    names = set(NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
    return sorted(
        name
        for name in names
        if name not in known and SUFFIX.sub("", name) not in known and not FOREIGN.fullmatch(name)
    )


@of_tables
def test_every_queried_metric_exists(metrics: set[str]) -> None:
    asked = list(expressions())
    assert len(asked) > 80
    missing = {where: names for where, text in asked if (names := unknown(text, metrics))}
    assert missing == {}
    misspelt = "tandem_rpc_durations_seconds_count"  # the positive control
    assert unknown(f"rate({misspelt}[5m])", metrics) == [misspelt]


@of_tables
def test_every_other_metric_in_the_deployment_exists(metrics: set[str]) -> None:
    paths = [*DEPLOY.rglob("*.y*ml"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    missing = {}
    for path in paths:
        names = re.findall(
            r"\btandem_[a-z_]+(?:_total|_seconds|_bytes|_ratio|_count|_info)\b", path.read_text()
        )
        if bad := [name for name in names if unknown(name, metrics)]:
            missing[str(path.relative_to(ROOT))] = sorted(set(bad))
    assert missing == {}


@of_tables
def test_the_document_lists_the_services_metrics(tables: dict[str, str]) -> None:
    """docs/metrics.md has every service's table as it prints it; `make metrics-doc` writes it."""
    document = (ROOT / "docs" / "metrics.md").read_text()
    assert [service for service, text in tables.items() if text.strip() not in document] == []


def test_the_dashboards_are_current() -> None:
    """A change to one is a change to panels.yaml."""
    program = runpy.run_path(str(DEPLOY / "grafana" / "make_dashboards.py"))
    assert program["files"]() == {path.name: path.read_text() for path in DASHBOARDS}


def test_every_alert_is_explained_and_tested() -> None:
    """An entry in the runbook, a test, someone to tell; and nothing is left over."""
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    tests = "".join(path.read_text() for path in RULE_TESTS)
    names = [alert["alert"] for alert in alerts()]
    assert re.findall(r"^## (Tandem\w+)$", runbook, re.M) == names
    tested = re.findall(r'ALERTS\{alertname="(\w+)"', tests)
    assert {name: tested.count(name) for name in set(tested)} == dict.fromkeys(names, 3)
    assert {alert["labels"]["severity"] for alert in alerts()} == {"page", "ticket"}
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"


def test_alerts_ask_for_the_job_of_every_target() -> None:
    asked = {job for _, text in expressions() for job in re.findall(r'\bjob="(\w+)"', text)}
    compose = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    resources = rendered("full")
    (monitor,) = of_kind(resources, "ServiceMonitor")
    # Without the label named, or on a Service without it, the job is the Service's name.
    label = monitor["spec"].get("jobLabel", "")
    services = of_kind(resources, "Service")

    jobs = {each["job_name"] for each in compose["scrape_configs"]}
    jobs |= {each["metadata"]["labels"].get(label, each["metadata"]["name"]) for each in services}

    assert len(services) > 4
    assert jobs == asked == {LOCAL_JOB}


# What is left out is reported at the end of `make test`; CI brings the tool along (.ci/run).
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="NOT CHECKED: Prometheus's rules and alerts: promtool is missing (Debian: prometheus)",
)


@needs_promtool
def test_prometheus_accepts_rules_and_expressions(tmp_path: Path) -> None:
    """The dashboards' as rules, for promtool reads nothing else."""
    made = [
        {"record": f"dashboard:expression{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, (_, text) in enumerate(expressions())
    ]
    path = tmp_path / "dashboards.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": made}]}))
    promtool("check", "rules", *map(str, RULES), str(path))
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


@needs_promtool
@pytest.mark.timeout(300)
def test_alerts_fire_and_resolve() -> None:
    promtool("test", "rules", *map(str, RULE_TESTS))


def promtool(*arguments: str) -> None:
    """Runs it; what it says is the failure."""
    # On one core, and collecting garbage less often, it takes two thirds of the processor time.
    lean = {"GOGC": "800", "GOMAXPROCS": "1"}
    ran = subprocess.run(
        ["promtool", *arguments], env=os.environ | lean, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
