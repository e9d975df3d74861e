"""What the watch run asks of a Prometheus, over its HTTP API."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_TIMEOUT_SECONDS = 30.0


class QueryRefused(Exception):
    """Prometheus does not take the expression."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a graph: its labels, and (unix time, value) without what is not a number."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Firing:
    """One time that an alert fired, by unix time; `end_time` is None where it still does."""

    start_time: float
    end_time: float | None


class PrometheusApi:
    """Reads from one server."""

    def __init__(self, url: str, step_seconds: float) -> None:
        self._url = url
        self.step_seconds = step_seconds

    def range(self, expression: str, start_time: float, end_time: float) -> list[Series]:
        """Returns an expression's values over a time; raises QueryRefused."""
        data = self._get(
            "query_range", query=expression, start=start_time, end=end_time, step=self.step_seconds
        )
        found = []
        for each in data["result"]:
            pairs = ((float(when), float(value)) for when, value in each["values"])
            points = [(when, value) for when, value in pairs if math.isfinite(value)]
            if points:
                found.append(Series(each["metric"], points))
        return found

    def metric_names(self) -> set[str]:
        """Returns the name of every series there is."""
        return set(self._get("label/__name__/values"))

    def firings(self, start_time: float, end_time: float) -> dict[str, list[Firing]]:
        """Returns, by alert, the times that any of it fired."""
        found: dict[str, list[Firing]] = {}
        expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
        for series in self.range(expression, start_time, end_time):
            times = [when for when, _ in series.points]
            firings: list[Firing] = []
            begun = times[0]
            for when, later in zip(times, [*times[1:], math.inf], strict=True):
                if later - when > 1.5 * self.step_seconds:
                    is_last = when > end_time - 1.5 * self.step_seconds
                    firings.append(Firing(begun, None if is_last else when))
                    begun = later
            found[series.labels["alertname"]] = firings
        return found

    def exemplar_times(self, metric: str, start_time: float, end_time: float) -> dict[str, float]:
        """Returns when each trace was seen that the metric's exemplars point to."""
        data = self._get("query_exemplars", query=metric, start=start_time, end=end_time)
        return {
            exemplar["labels"]["trace_id"]: float(exemplar["timestamp"])
            for each in data
            for exemplar in each["exemplars"]
        }

    def _get(self, path: str, **parameters: object) -> Any:  # noqa: ANN401 (whatever it says)
        query = urllib.parse.urlencode({key: str(value) for key, value in parameters.items()})
        address = f"{self._url}/api/v1/{path}?{query}"
        try:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_SECONDS) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise QueryRefused(error.read().decode()) from error
