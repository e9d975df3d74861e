"""The orchestrator's process with the other services in it: the answers stay the same."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.runs.watching import contract
from tandem import Engine
from tandem.client import Client, SearchResult
from tandem.local.item_store.item_store import ItemStore
from tandem.model_io.repository.manifest import Manifest
from tandem.stack.stack import LocalStack, Ports
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tests.support.client.search_forms import INDEX, NORMALISED, assert_same, forms, said
from tests.support.local.tiny_stack import TINY_STACK
from tests.support.pictures.pictures import encoded, noise

TEXT = "two dogs left of one umbrella"
TOLERANCE = 1e-6
# The logits of random weights differ by hundredths, and are divided by that.
NORMALISED_TOLERANCE = 1e-4
GOOD = {
    "ORCHESTRATOR_ADDRESS": "127.0.0.1:0",
    "ORCHESTRATOR_METRICS_PORT": "0",
    "ORCHESTRATOR_ENCODER_ADDRESS": "127.0.0.1:1",
    "ORCHESTRATOR_INDEX_ADDRESSES": "127.0.0.1:1,127.0.0.1:2",
    "ORCHESTRATOR_RERANK_ADDRESSES": "in-process,in-process",
    "RERANK_TRITON_ADDRESS": "127.0.0.1:1",
    "RERANK_STORE_PATH": "store-{shard}",
}


def ended(module: str, changes: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a process that does not start."""
    return subprocess.run(
        [sys.executable, "-m", module],
        env=os.environ | GOOD | changes,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "changes", "says"),
    [
        ("orchestrator_svc", {}, "python -m merged_svc runs services that are in-process"),
        (
            "merged_svc",
            {"RERANK_STORE_PATH": "store"},
            "RERANK_STORE_PATH: {shard} must stand for the shard's number",
        ),
        (
            "merged_svc",
            {
                "ORCHESTRATOR_INDEX_ADDRESSES": "127.0.0.1:1,in-process@127.0.0.1:0",
                "INDEX_STORE_PATH": "store",
            },
            "INDEX_STORE_PATH: {shard} must stand for the shard's number",
        ),
        ("merged_svc", {"RERANK_THREAD_COUNT": "0"}, "RERANK_THREAD_COUNT must be at least 1"),
    ],
)
def test_what_cannot_work_stops_the_start(
    tiny_repository: Path, module: str, changes: Mapping[str, str], says: str
) -> None:
    """By name, and without a traceback."""
    done = ended(module, {"RERANK_MODEL_REPOSITORY": str(tiny_repository), **changes})

    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_room_that_cannot_start_ends_the_process_as_it_ends_its_own(
    tmp_path: Path, tiny_repository: Path
) -> None:
    """The second shard's store is of another count of shards."""
    for number, count in enumerate((2, 3)):
        ItemStore.open(tmp_path / f"store-{number}", number, count).close()

    done = ended(
        "merged_svc",
        {
            "RERANK_MODEL_REPOSITORY": str(tiny_repository),
            "RERANK_STORE_PATH": str(tmp_path / "store-{shard}"),
        },
    )

    assert done.returncode == 1
    assert "merged_svc: " in done.stderr.splitlines()[-1]
    assert "3" in done.stderr.splitlines()[-1]


def test_a_taken_port_of_operators_is_named(tmp_path: Path, tiny_repository: Path) -> None:
    """The shard's own port is for its operators alone, and no search needs it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = ended(
            "merged_svc",
            {
                "ORCHESTRATOR_INDEX_ADDRESSES": f"in-process@{address}",
                "ORCHESTRATOR_RERANK_ADDRESSES": "127.0.0.1:1",
                "INDEX_STORE_PATH": str(tmp_path / "store-{shard}"),
            },
        )

    assert done.returncode == 2
    assert f"cannot listen at {address}" in done.stderr


def test_a_merged_stack_starts_fewer_processes_with_the_same_variables(tmp_path: Path) -> None:
    """Every variable of the services that have no process of their own is the orchestrator's."""
    settings = {"ENCODER_THREAD_COUNT": "3", "RERANK_THREAD_COUNT": "4", "INDEX_THREAD_COUNT": "5"}
    ports = Ports.free(shard_count=2)
    apart = LocalStack(tmp_path, tmp_path, ports, caches=False, settings=settings)
    merged = LocalStack(
        tmp_path, tmp_path, ports, caches=False, gateway=True, merged=True, settings=settings
    )

    assert merged.service_names() == ["orchestrator"]
    arguments, variables = merged.command("orchestrator")
    assert arguments == ["-m", "merged_svc"]
    assert variables["ORCHESTRATOR_ENCODER_ADDRESS"] == "in-process"
    assert variables["ORCHESTRATOR_RERANK_ADDRESSES"] == "in-process,in-process"
    doors = [f"in-process@127.0.0.1:{port}" for port in ports.index]
    assert variables["ORCHESTRATOR_INDEX_ADDRESSES"] == ",".join(doors)
    assert variables["INDEX_STORE_PATH"] == str(tmp_path / "shard-{shard}")
    assert variables["RERANK_STORE_PATH"] == str(tmp_path / "shard-{shard}")
    assert variables["GATEWAY_ORCHESTRATOR_ADDRESS"] == "in-process"
    assert variables["GATEWAY_ADDRESS"] == f"127.0.0.1:{ports.gateway}"
    assert merged.http_url == f"http://localhost:{ports.gateway}/"
    replaced = re.compile(r".*_(ADDRESS(ES)?|METRICS_PORT|STORE_PATH|SHARD_NUMBER)")
    for name in apart.service_names():
        for key, value in apart.command(name)[1].items():
            assert replaced.fullmatch(key) or variables[key] == value, key


def item_gauges(stack: LocalStack) -> list[Mapping[str, float]]:
    """Returns each shard's items by modality, as Prometheus reads them."""
    with urllib.request.urlopen(stack.metrics_url("orchestrator"), timeout=60) as response:
        families = text_string_to_metric_families(response.read().decode())
    shards: dict[str, dict[str, float]] = {}
    for family in families:
        for sample in family.samples:
            if sample.name == "tandem_index_items":
                counts = shards.setdefault(sample.labels["shard"], {})
                counts[sample.labels["modality"]] = sample.value
    return [shards[shard] for shard in sorted(shards)]


def assert_same_by_http(stack: LocalStack, client: Client) -> None:
    """Compares the ids of an answer, at once and streamed, and what metrics count of it."""
    expected = [item.item_id for item in client.search(TEXT, index_id=INDEX).items]
    for accept in ("application/json", "text/event-stream"):
        asked = urllib.request.Request(
            f"{stack.http_url}v1/search",
            json.dumps({"query": TEXT, "index_id": INDEX}).encode(),
            {"content-type": "application/json", "accept": accept},
        )
        with urllib.request.urlopen(asked, timeout=60) as response:
            body = response.read().decode()
        answer = json.loads(body.rpartition("data: ")[2])
        # Logits of a near tie are rounded by the batch that they are in.
        assert sorted(item["item_id"] for item in answer["items"]) == sorted(expected), accept
    assert expected
    # The gateway looks at the orchestrator's health by itself, and may answer before it has.
    end_time = time.monotonic() + 60.0
    while 'tandem_serving{service="gateway"} 1.0' not in (lines := _metrics(stack)):
        assert time.monotonic() < end_time, lines
        time.sleep(0.1)
    counted = 'tandem_rpc_duration_seconds_count{code="OK",method="%s",service="%s"}'
    assert counted % ("search", "gateway") in lines
    assert counted % ("StreamSearchItems", "orchestrator") in lines


def _metrics(stack: LocalStack) -> str:
    served = f"http://127.0.0.1:{stack.ports.metrics[stack.ports.orchestrator]}/metrics"
    with urllib.request.urlopen(served, timeout=60) as response:
        text: str = response.read().decode()
        return text


def assert_nothing_asked_for_is_missing(stack: LocalStack) -> None:
    """Every panel, rule and document finds its metrics on the ports of these few processes."""
    live: set[str] = set()
    for service in ("orchestrator", "triton"):
        with urllib.request.urlopen(stack.metrics_url(service), timeout=60) as response:
            text = response.read().decode()
        live |= set(re.findall(r"^(?:# TYPE )?(\w+)", text, re.M))
    asked = {
        where: {name for name in names if not re.fullmatch(r"tandem:[\w:]+|ALERTS|up", name)}
        for where, names in contract.names_asked_for().items()
    }
    assert contract.missing_names(asked, live) == []
    assert contract.missing_names({"a panel": {"tandem_made_up_total"}}, live) != []
    services = {"orchestrator", "gateway", "encoder", "index", "rerank"}
    for name in ("tandem_serving", "tandem_rpc_inflight_count", "tandem_build_info"):
        with urllib.request.urlopen(stack.metrics_url("orchestrator"), timeout=60) as response:
            lines = re.findall(rf"^{name}{{.*$", response.read().decode(), re.M)
        assert set(re.findall(r'service="(\w+)"', "".join(lines))) == services, name


def item_counts(stack: LocalStack) -> list[int]:
    """Returns how many pictures each shard has, by its own port of operators."""
    counts = []
    for port in stack.ports.index:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = IndexAdminServiceStub(channel)
            answer = stub.DescribeIndexes(
                admin_pb.DescribeIndexesRequest(index_id=INDEX), timeout=60
            )
        counts.append(sum(each.item_count for each in answer.descriptions))
    return counts


@TINY_STACK
@pytest.mark.timeout(600)
def test_a_merged_stack_answers_as_an_engine_and_degrades_without_triton(
    tmp_path: Path, tiny_repository: Path, lone_instances: Path, tiny_manifest: Manifest
) -> None:
    """An engine answers as the separate services do (test_as_the_services)."""
    given = [(f"picture-{n}", encoded(noise(n), "PNG")) for n in range(9)]
    picture = encoded(noise(3), "PNG")
    asked = forms(TEXT, picture, "picture-4", tiny_manifest)
    with Engine(tmp_path, model=tiny_repository, shards=2) as engine:
        assert all(each.error is None for each in engine.ingest(given, index_id=INDEX))
        own = {name: said(ask(engine)) for name, ask in asked.items()}

    ports = Ports.free(shard_count=2)
    with LocalStack(tmp_path, lone_instances, ports, gateway=True, merged=True) as stack:
        stack.start()
        assert [each.name for each in stack.endpoints()] == ["orchestrator", "triton"]
        counts = item_counts(stack)
        assert item_gauges(stack) == [{"text": 0, "image": count} for count in counts]
        assert sum(counts) == 9
        assert all(counts)
        with Client(stack.address, timeout_seconds=60.0) as client:
            for name, ask in asked.items():
                tolerance = NORMALISED_TOLERANCE if name == NORMALISED else TOLERANCE
                assert_same(said(ask(client)), own[name], tolerance, name)

            assert_same_by_http(stack, client)

            def search(depth: int) -> SearchResult:
                return client.search("a cup and two cats", index_id=INDEX, rerank_k=depth)

            assert search(1).rerank.stop == "COMPLETE"
            assert_nothing_asked_for_is_missing(stack)
            stack.stop_triton()
            # The query's encoding is cached; seven pairs are not.
            degraded = search(8)
            assert degraded.rerank.stop == "UNAVAILABLE"
            assert len(degraded.items) == 9
            stack.start_triton()
            end_time = time.monotonic() + 90
            while search(8).rerank.stop != "COMPLETE":
                assert time.monotonic() < end_time, "searches are still not reranked"
                time.sleep(0.2)
        stack.stop_service("orchestrator")
