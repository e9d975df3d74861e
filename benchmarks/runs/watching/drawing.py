"""Draws dashboards as Grafana would show them, out of what a Prometheus has.

    python -m benchmarks.runs.watching.drawing URL START END FOLDER [NAME ...]

Times are unix seconds. `watch_run.py --picture FOLDER` does it at the end of a run. matplotlib is
of the extra `train`; no service needs it.
"""

import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, PercentFormatter

from benchmarks.runs.watching.prometheus_api import PrometheusApi, Series

_DASHBOARDS = Path(__file__).parents[3] / "deploy" / "grafana" / "dashboards"
_COLUMN_COUNT = 2
_PANEL_INCHES = (6.4, 2.5)
_DPI = 72
_MAX_LEGEND_COUNT = 9
_LABEL = re.compile(r"{{(\w+)}}")


def draw_all(
    api: PrometheusApi,
    start_time: float,
    end_time: float,
    folder: Path,
    names: Collection[str] = (),
    events: Sequence[tuple[float, str]] = (),
) -> list[Path]:
    """Draws each dashboard, or those named, to FOLDER/monitoring_<name>.png; returns the paths.

    `events` are drawn as lines at their unix times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for source in sorted(_DASHBOARDS.glob("*.json")):
        if names and source.stem not in names:
            continue
        figure = _figure(json.loads(source.read_text()), api, start_time, end_time, events)
        paths.append(folder / f"monitoring_{source.stem}.png")
        figure.savefig(paths[-1], dpi=_DPI)
    return paths


def _figure(
    dashboard: Mapping[str, Any],
    api: PrometheusApi,
    start_time: float,
    end_time: float,
    events: Sequence[tuple[float, str]],
) -> Figure:
    panels = dashboard["panels"]
    row_count = -(-len(panels) // _COLUMN_COUNT)
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width * _COLUMN_COUNT, height * row_count + 0.4), layout="constrained")
    figure.suptitle(dashboard["title"], fontsize=13)
    rate = f"{max(15.0, 4 * api.step_seconds):.0f}s"
    axes = figure.subplots(row_count, _COLUMN_COUNT, squeeze=False).flatten()
    for place, panel in zip(axes, panels, strict=False):
        lines = [
            (_legend(target["legendFormat"], series), series)
            for target in panel["targets"]
            for series in api.range(
                target["expr"].replace("$__rate_interval", rate), start_time, end_time
            )
        ]
        _draw_panel(place, panel, lines, start_time, end_time - start_time)
        for when, _ in events:
            place.axvline(when - start_time, color="0.8", linewidth=0.8, zorder=0)
    for place in axes[len(panels) :]:
        place.set_axis_off()
    return figure


def _draw_panel(
    axes: Axes,
    panel: Mapping[str, Any],
    lines: Sequence[tuple[str, Series]],
    start_time: float,
    seconds: float,
) -> None:
    # The highest first, so that none of interest is left out of the legend.
    for legend, series in sorted(lines, key=lambda line: (-_highest(line[1]), line[0])):
        axes.plot(
            [when - start_time for when, _ in series.points],
            [value for _, value in series.points],
            linewidth=1.2,
            label=legend,
        )
    axes.set_title(panel["title"], fontsize=10, loc="left")
    defaults = panel["fieldConfig"]["defaults"]
    axes.yaxis.set_major_formatter(_formatter(defaults["unit"]))
    axes.set_xlim(0.0, seconds)
    axes.set_ylim(bottom=0.0, top=defaults.get("max"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f} s"))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    handles, names = axes.get_legend_handles_labels()
    if not names:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="0.5")
        return
    shown = slice(_MAX_LEGEND_COUNT)
    title = f"and {len(names) - _MAX_LEGEND_COUNT} more" if len(names) > _MAX_LEGEND_COUNT else None
    axes.legend(
        handles[shown],
        names[shown],
        title=title,
        title_fontsize=7,
        fontsize=7,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.05),
    )


def _highest(series: Series) -> float:
    return max(value for _, value in series.points)


def _formatter(unit: str) -> EngFormatter | FuncFormatter | PercentFormatter:
    match unit:
        case "percentunit":
            return PercentFormatter(xmax=1.0)
        case "s":
            return EngFormatter(unit="s")
        case "bytes":
            return EngFormatter(unit="B")
        case "reqps":
            return FuncFormatter(lambda value, _: f"{value:g}/s")
        case _:
            return FuncFormatter(lambda value, _: f"{value:,g}")


def _legend(form: str, series: Series) -> str:
    return _LABEL.sub(lambda found: series.labels.get(found[1], ""), form)


def main() -> None:
    """Draws from a running server."""
    url, start_time, end_time, folder, *names = sys.argv[1:]
    start, end = float(start_time), float(end_time)
    api = PrometheusApi(url, max(2.0, (end - start) / 300))
    for path in draw_all(api, start, end, Path(folder), names):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
