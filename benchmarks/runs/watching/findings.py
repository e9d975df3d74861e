"""Compares what a watch run found with what should be there, and reports it."""

from typing import Any

from benchmarks.runs.watching.contract import (
    Expression,
    dashboard_expressions,
    empty_expressions,
    idle_excuses,
    missing_names,
    names_asked_for,
    undocumented_names,
    unexcused,
)
from benchmarks.runs.watching.prometheus_api import PrometheusApi
from benchmarks.runs.watching.troubles import CAUSES

# Of searches while nothing is wrong.
MIN_OK_SHARE = 0.99

Row = dict[str, Any]


def checked(api: PrometheusApi, start_time: float, end_time: float, scrape_seconds: float) -> Row:
    """Returns what holds and what does not."""
    expressions = list(dashboard_expressions())
    live = api.metric_names()
    rate_seconds = max(15.0, 4 * scrape_seconds)
    asked = names_asked_for()
    made_up = Expression("made up: panel: line", "rate(tandem_made_up_total[$__rate_interval])")

    def empty_among(asked_for: list[Expression]) -> list[str]:
        return empty_expressions(api, asked_for, start_time, end_time, rate_seconds)

    empty = empty_among(expressions)
    firings = api.firings(start_time, end_time)
    return {
        "expressions": len(expressions),
        "empty_expressions": unexcused(empty),
        "names": len(set().union(*asked.values())),
        "missing_names": missing_names(asked, live),
        "undocumented_names": undocumented_names(live),
        "idle_excuses": idle_excuses(live, empty),
        "made_up_is_caught": empty_among([made_up]) == [made_up.where]
        and missing_names({"made up": {"tandem_made_up_total"}}, live) != [],
        "alerts": {
            name: [
                (
                    round(each.start_time - start_time, 1),
                    None if each.end_time is None else round(each.end_time - start_time, 1),
                )
                for each in firings.get(name, [])
            ]
            for name in CAUSES
        },
        "alerts_of_no_cause": sorted(set(firings) - set(CAUSES)),
    }


def lacks(result: Row) -> list[str]:
    """Returns what is not as it should be."""
    found = [
        f"{key}: {result[key]}"
        for key in (
            "empty_expressions",
            "missing_names",
            "undocumented_names",
            "idle_excuses",
            "alerts_of_no_cause",
            "exemplars_without_trace",
            "faults_of_the_run",
        )
        if result[key]
    ]
    found += [f"{name} never fired" for name, times in result["alerts"].items() if not times]
    found += [
        f"{name} did not resolve"
        for name, times in result["alerts"].items()
        if times and times[-1][1] is None
    ]
    # A run whose searches are not answered when nothing is wrong says nothing.
    for row in result["exporter"]:
        if row["codes"].get("OK", 0) < MIN_OK_SHARE * sum(row["codes"].values()):
            found.append(f"searches fail though nothing is wrong: {row}")
    if not result["made_up_is_caught"]:
        found.append("a made-up metric is not caught")
    if not result["exemplars"] or not result["traces_through_all_services"]:
        found.append("no exemplars, or no trace through all services")
    return found


def report(result: Row) -> str:
    """Returns the figures as Markdown."""
    rows = ["| alert | set off by | fired, s | resolved, s |", "| --- | --- | ---: | ---: |"]
    for name, times in result["alerts"].items():
        fired = ", ".join(f"{start:.0f}" for start, _ in times) or "never"
        ended = ", ".join("no" if end is None else f"{end:.0f}" for _, end in times)
        rows.append(f"| {name} | {CAUSES[name]} | {fired} | {ended} |")
    rows += ["", "| s | what happened |", "| ---: | --- |"]
    rows += [f"| {when:.0f} | {what} |" for when, what in result["events"]]
    return "\n".join(rows)
