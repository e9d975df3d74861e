"""Counts what a model computed: by Triton, and by this process's requests."""

import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from tandem.chassis.telemetry.metrics import REGISTRY

PATIENCE_SECONDS = 20.0
STILL_SECONDS = 0.3
# Rows that the canaries of a stack add in that time, with two shards: three services send three a
# second. Without them a stack never stands still, and each look took the whole patience.
STACK_CANARY_COUNT = 6


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows that a model read, and how often it ran."""

    inferences: float
    executions: float

    @classmethod
    def of(cls, metrics_url: str, model: str) -> Self:
        """Returns the counts since the server's start, as they stand at this moment."""
        values = _values(metrics_url, model)
        return cls(values["nv_inference_count"], values["nv_inference_exec_count"])

    @classmethod
    def asked(cls, model: str) -> Self:
        """Returns what this process has asked for and was answered: rows, and requests.

        Nothing waits in between, and other users of the server do not add to it.
        """
        [rows] = [each for each in REGISTRY.collect() if each.name == "tandem_triton_request_rows"]
        values = {"_sum": 0.0, "_count": 0.0}
        for sample in rows.samples:
            kind = sample.name.removeprefix(rows.name)
            if sample.labels["model"] == model and kind in values:
                values[kind] += sample.value
        return cls(values["_sum"], values["_count"])

    @classmethod
    def at_rest(cls, metrics_url: str, model: str, canary_count: int = 0) -> Self:
        """Returns the counts once no more than `canary_count` rows came in STILL_SECONDS.

        Triton counts an execution after it has answered: on a busy machine, visibly later.
        """
        deadline_time = time.monotonic() + PATIENCE_SECONDS
        counts = still = cls.of(metrics_url, model)
        still_since = time.monotonic()
        while (now := time.monotonic()) < min(still_since + STILL_SECONDS, deadline_time):
            time.sleep(0.05)
            counts = cls.of(metrics_url, model)
            added = counts.since(still)
            if max(added.inferences, added.executions) > canary_count:
                still, still_since = counts, now
        return counts

    def since(self, before: Self) -> Self:
        """Returns what has been added."""
        return type(self)(self.inferences - before.inferences, self.executions - before.executions)


def counted(metrics_url: str, model: str, before: Counts, inference_count: int) -> Counts:
    """Returns what was added to `before`, waiting until that many rows were counted.

    And until two readings are alike: Triton counts the rows first and then the execution, and a
    reading may come between.
    """
    deadline_time = time.monotonic() + PATIENCE_SECONDS
    last, counts = None, Counts.of(metrics_url, model).since(before)
    while (counts.inferences < inference_count or counts != last) and (
        time.monotonic() < deadline_time
    ):
        time.sleep(0.05)
        last, counts = counts, Counts.of(metrics_url, model).since(before)
    return counts


def wait_for_queue(
    metrics_url: str, model: str, request_count: int, is_asked: Callable[[], bool]
) -> None:
    """Returns once that many requests wait for the model, or it is asked no more.

    Of a machine that is busy elsewhere so many may never be seen to wait: the model is done with
    the first ones before the last have come.
    """
    while is_asked():
        if _values(metrics_url, model)["nv_inference_pending_request_count"] >= request_count:
            return
        time.sleep(0.005)


def _values(metrics_url: str, model: str) -> dict[str, float]:
    with urllib.request.urlopen(metrics_url, timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
    return {
        family.name: sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("model") == model
    }
