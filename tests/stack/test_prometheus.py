"""A Prometheus of our own: with the deployed rules, at their pace or faster, gone at the end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from typer.testing import CliRunner

from tandem.chassis.health.metrics_server import MetricsServer
from tandem.cli.app import app
from tandem.stack.free_ports import free_ports
from tandem.stack.prometheus import (
    LocalPrometheus,
    PrometheusUnavailable,
    scraped,
    sped_up,
    write_targets,
)

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed"
)


def test_every_window_and_wait_is_divided_equally() -> None:
    """Names and labels that look like durations are left alone."""
    rules = (
        "  interval: 30s\n"
        "  - record: tandem:ratio_rate5m\n"
        '    expr: rate(a_total{reason="5m"}[5m]) / rate(b_total[6h])\n'
        "    for: 2m\n"
    )
    assert sped_up(rules, 20) == (
        "  interval: 1500ms\n"
        "  - record: tandem:ratio_rate5m\n"
        '    expr: rate(a_total{reason="5m"}[15000ms]) / rate(b_total[1080000ms])\n'
        "    for: 6000ms\n"
    )
    assert sped_up(rules, 1) == rules


@needs_prometheus
@pytest.mark.parametrize("speed", [2, 20, 60])
def test_rules_that_are_sped_up_are_rules(tmp_path: Path, speed: int) -> None:
    """Every committed one, by Prometheus's own word; and none keeps a deployed duration."""
    for path in RULES.glob("*.yml"):
        (tmp_path / path.name).write_text(sped_up(path.read_text(), speed))
    paths = sorted(map(str, tmp_path.glob("*.yml")))
    ran = subprocess.run(["promtool", "check", "rules", *paths], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    text = "".join(Path(path).read_text() for path in paths)
    assert "[5m]" not in text
    assert "for: 5m" not in text
    assert "interval: 30s" not in text


def test_missing_programs_are_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tandem up --monitoring` where there is no prometheus on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrometheusUnavailable, match="install it"):
        LocalPrometheus.check_installed()
    ran = CliRunner().invoke(app, ["up", "--monitoring", "--data", str(tmp_path / "data")])
    assert ran.exit_code == 1
    assert not (tmp_path / "data").exists()


@needs_prometheus
def test_it_scrapes_its_targets_and_stops_at_the_end(tmp_path: Path) -> None:
    """Real Prometheus, a real endpoint, one more target while it runs, and no process left."""
    registry = CollectorRegistry()
    Gauge("tandem_serving", "1 while serving.", ["service"], registry=registry).labels("x").set(1)
    door = MetricsServer("127.0.0.1", 0, registry)
    url = f"http://127.0.0.1:{door.port}/metrics"
    [port] = free_ports(1)
    try:
        with LocalPrometheus(tmp_path, port, scraped([("one", url)]), speed=60) as prometheus:
            pid = prometheus.pid
            assert os.getpgid(pid) == pid  # Ctrl-C at the terminal is not for it
            write_targets(prometheus.target_folder / "more.json", {"two": f"127.0.0.1:{door.port}"})
            wait_for(prometheus, "count(tandem_serving == 1)", "2")
            rules = get(prometheus, "rules")["groups"]
            assert sum(len(group["rules"]) for group in rules) > 30
            assert all(rule["health"] != "err" for group in rules for rule in group["rules"])
    finally:
        door.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def wait_for(prometheus: LocalPrometheus, expression: str, value: str) -> None:
    """Returns once the expression has the value."""
    end_time = time.monotonic() + 20
    found: Any = None
    while time.monotonic() < end_time:
        found = get(prometheus, f"query?query={expression.replace(' ', '%20')}")["result"]
        if found and found[0]["value"][1] == value:
            return
        time.sleep(0.2)
    raise AssertionError(f"{expression} is {found}")


def get(prometheus: LocalPrometheus, path: str) -> Any:
    """Returns what its API says."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/{path}", timeout=60) as response:
        return json.load(response)["data"]
