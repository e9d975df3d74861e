"""Where a served search's time goes, from what the services and Triton count of themselves.

Means over the searches between two looks. What a caller waited for and its callee did not count is
the way between the two: messages made and read, the network, and threads that had to be woken.
"""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.support.loads.growth import cpu_seconds, tree_cpu_seconds
from tandem.model_io.repository.manifest import JOINT_ENCODER
from tandem.stack.stack import LocalStack

_MS_OF_MICROSECONDS = 1e-3
_MS_OF_SECONDS = 1e3


@dataclass(frozen=True)
class Look:
    """What a stack has counted since its start."""

    values: Mapping[tuple[str, str, str], float]
    """By process, metric and label: a stage, a method or a model."""
    cpu_ms: Mapping[str, float]
    """By process; Triton's with its stubs, where the models run."""

    def process_of(self, service: str) -> str:
        """Returns the process that the service is in: its own, or the orchestrator's."""
        return service if service in self.cpu_ms else "orchestrator"

    @classmethod
    def at(cls, stack: LocalStack) -> Self:
        """Asks every process."""
        values: dict[tuple[str, str, str], float] = {}
        for name in (*stack.service_names(), "triton"):
            with urllib.request.urlopen(stack.metrics_url(name), timeout=5) as response:
                families = text_string_to_metric_families(response.read().decode())
            for family in families:
                for sample in family.samples:
                    label = _label(sample.labels)
                    if label:
                        values[name, sample.name, label] = sample.value
        pids = {endpoint.name: endpoint.pid for endpoint in stack.endpoints()}
        cpu = {name: _MS_OF_SECONDS * cpu_seconds([pid])[pid] for name, pid in pids.items()}
        cpu["models"] = _MS_OF_SECONDS * tree_cpu_seconds(pids["triton"]) - cpu["triton"]
        return cls(values, cpu)


def spent(
    before: Look, after: Look, shard_count: int, search_count: int, client_ms: float
) -> dict[str, float]:
    """Returns mean milliseconds of a search, by where they went, in the order of its path.

    `client_ms` is what the client saw. Of several shards it reports the mean;
    the wait for the slower one is with the way.
    """

    def gain(process: str, metric: str, label: str) -> float:
        key = (after.process_of(process), metric, label)
        return after.values.get(key, 0.0) - before.values.get(key, 0.0)

    def mean(process: str, metric: str, label: str) -> float:
        count = gain(process, f"{metric}_count", label)
        return _MS_OF_SECONDS * gain(process, f"{metric}_sum", label) / count if count else 0.0

    def stage(service: str, process: str, name: str) -> float:
        return mean(process, f"tandem_{service}_stage_duration_seconds", name)

    def call(process: str, method: str) -> float:
        return mean(process, "tandem_rpc_duration_seconds", method)

    def of_shards(service: str, name: str) -> float:
        each = [stage(service, f"{service}-{number}", name) for number in range(shard_count)]
        return sum(each) / shard_count

    def calls_of_shards(service: str, method: str) -> float:
        return sum(call(f"{service}-{n}", method) for n in range(shard_count)) / shard_count

    def triton(name: str) -> float:
        """Of one request; those of both roles and the canaries' are counted together."""
        request_count = gain("triton", "nv_inference_request_success_total", JOINT_ENCODER)
        metric = f"nv_inference_{name}_duration_us_total"
        return _MS_OF_MICROSECONDS * gain("triton", metric, JOINT_ENCODER) / max(request_count, 1)

    whole = call("orchestrator", "SearchItems")
    encode = stage("orchestrator", "orchestrator", "encode")
    retrieve = stage("orchestrator", "orchestrator", "retrieve")
    rerank = stage("orchestrator", "orchestrator", "rerank")
    rank = stage("orchestrator", "orchestrator", "rank")
    encode_call = call("encoder", "EncodeContents")
    preprocess = stage("encoder", "encoder", "preprocess")
    embed = stage("encoder", "encoder", "inference")
    retrieve_call = calls_of_shards("index", "SearchEmbeddings")
    rerank_call = calls_of_shards("rerank", "ScoreCandidates")
    read = of_shards("rerank", "read")
    inference = of_shards("rerank", "inference")
    return {
        "client": client_ms,
        "client, way to the orchestrator": client_ms - whole,
        "orchestrator, outside of stages": whole - encode - retrieve - rerank - rank,
        "encode": encode,
        "encode, way to encoder_svc": encode - encode_call,
        "encode, encoder_svc itself": encode_call - preprocess - embed,
        "encode, words split": preprocess,
        "encode, Triton and the way there": embed,
        "retrieve": retrieve,
        "retrieve, way to index_svc": retrieve - retrieve_call,
        "retrieve, index_svc": retrieve_call,
        "rerank": rerank,
        "rerank, way to rerank_svc": rerank - rerank_call,
        "rerank, rerank_svc itself": rerank_call - read - inference,
        "rerank, tokens read": read,
        "rerank, Triton and the way there": inference,
        "rank": rank,
        "Triton, a request in the queue": triton("queue"),
        "Triton, a request's tensors in": triton("compute_input"),
        "Triton, a request computed": triton("compute_infer"),
        "Triton, a request's tensors out": triton("compute_output"),
        "Triton, executions": gain("triton", "nv_inference_exec_count_total", JOINT_ENCODER)
        / search_count,
    }


def cpu_spent(before: Look, after: Look, search_count: int) -> dict[str, float]:
    """Returns CPU milliseconds of a search by process; canaries and idling included."""
    return {name: (ms - before.cpu_ms[name]) / search_count for name, ms in after.cpu_ms.items()}


def _label(labels: Mapping[str, str]) -> str:
    for name in ("stage", "method", "model"):
        if name in labels and labels.get("code", "OK") == "OK":
            return labels[name]
    return ""
