"""Dashboards, rules, autoscalers and documents speak of metrics that running processes have.

In full, with alerts that fire: benchmarks/runs/watch.py.
"""

from __future__ import annotations

import re
import urllib.request

from benchmarks.runs.watching import contract
from tandem.client import Client
from tandem.stack.stack import LocalStack

# What one process may be scraped for, at most, all of its histograms' buckets with it.
MAX_SERIES_COUNT = 1_000
# Prometheus's own of a target, and what rules record.
MADE_BY_PROMETHEUS = re.compile(r"tandem:[\w:]+|ALERTS|up")


def scrapes(stack: LocalStack) -> dict[str, str]:
    """Returns what each process says of itself."""
    texts: dict[str, str] = {}
    for service in [*stack.service_names(), "triton"]:
        with urllib.request.urlopen(stack.metrics_url(service), timeout=60) as response:
            texts[service] = response.read().decode()
    return texts


def scraped_names(stack: LocalStack) -> set[str]:
    """Returns the name of every metric of every process, as Prometheus knows it."""
    names: set[str] = set()
    for text in scrapes(stack).values():
        # A labelled one has no sample before its first; it says of what type it is all the same.
        names |= set(re.findall(r"^# TYPE (\S+)", text, re.M))
        names |= set(re.findall(r"^(\w+)(?:{| )", text, re.M))
    return names


def test_rules_and_dashboards_use_exported_and_documented_metrics(
    stack: LocalStack, client: Client, scenes_index: str
) -> None:
    """Both ways; and a made-up name is caught."""
    client.search("two dogs", index_id=scenes_index)

    live = scraped_names(stack)
    asked = {
        where: {name for name in names if not MADE_BY_PROMETHEUS.fullmatch(name)}
        for where, names in contract.names_asked_for().items()
    }

    assert len(live) > 100
    assert contract.missing_names(asked, live) == []
    assert contract.undocumented_names(live) == []
    assert contract.missing_names({"a panel": {"tandem_made_up_total"}}, live) != []
    assert contract.undocumented_names({"tandem_made_up_total"}) == ["tandem_made_up_total"]


def test_no_process_has_many_series(stack: LocalStack, client: Client, scenes_index: str) -> None:
    """Though the stack has answered and refused all that other tests ask of it."""
    client.search("two dogs", index_id=scenes_index)

    series_counts = {
        service: len(re.findall(r"^\w", text, re.M)) for service, text in scrapes(stack).items()
    }

    assert max(series_counts.values()) < MAX_SERIES_COUNT, series_counts
    assert min(series_counts.values()) > 20, series_counts
