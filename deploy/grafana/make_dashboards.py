"""Writes dashboards/*.json of panels.yaml: python deploy/grafana/make_dashboards.py.

The JSON is what Grafana reads and what is committed; a test holds it to the panels, and every query
to metrics that a running Tandem has.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "dashboards"

_HEIGHT = 8
_WIDTH = 12
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# By what an operator must look at: a service's faults, what it sheds, and what callers did.
_COLOUR_OF_CODES = {
    "OK": "green",
    "UNAVAILABLE|INTERNAL|UNKNOWN|DATA_LOSS|UNIMPLEMENTED": "red",
    "DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED": "orange",
    "CANCELLED|[A-Z_]*ARGUMENT|[A-Z_]*PRECONDITION|NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED": (
        "blue"
    ),
}


def files() -> dict[str, str]:
    """Returns each dashboard's JSON by its file's name."""
    dashboards = yaml.safe_load(FOLDER.with_name("panels.yaml").read_text(encoding="utf-8"))
    return {
        f"{name}.json": json.dumps(_dashboard(name, each), indent=2) + "\n"
        for name, each in dashboards.items()
    }


def _dashboard(name: str, described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what Grafana imports; panels stand two in a row."""
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    return {
        "uid": f"tandem-{name}",
        "title": described["title"],
        "tags": ["tandem"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [datasource]},
        "links": [
            {"title": "Tandem", "type": "dashboards", "tags": ["tandem"], "asDropdown": True}
        ],
        "panels": [_panel(number, panel) for number, panel in enumerate(described["panels"])],
    }


def _panel(number: int, panel: Mapping[str, Any]) -> dict[str, Any]:
    top = {"max": panel["top"]} if "top" in panel else {}
    place = {"x": _WIDTH * (number % 2), "y": _HEIGHT * (number // 2), "w": _WIDTH, "h": _HEIGHT}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("about", ""),
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel["unit"], "min": 0} | top,
            "overrides": _colours(panel["queries"]),
        },
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["last"]}},
        "targets": [
            {
                "refId": chr(ord("A") + letter),
                "datasource": _SOURCE,
                "expr": query.replace("[rate]", "[$__rate_interval]"),
                "legendFormat": legend,
                "exemplar": "_bucket" in query,
            }
            for letter, (legend, query) in enumerate(panel["queries"].items())
        ],
    }


def _colours(legends: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns a fixed colour for each code, which Grafana would give by the order of lines."""
    if not any("{{code}}" in legend for legend in legends):
        return []
    return [
        {
            "matcher": {"id": "byRegexp", "options": f"/(^| )({codes})$/"},
            "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
        }
        for codes, colour in _COLOUR_OF_CODES.items()
    ]


def main() -> None:
    """Writes them all."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
