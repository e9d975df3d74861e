"""Secrets go through the services at debug level, right and wrong, and come out nowhere.

With every change some requests; `make test-security` sends a thousand.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import grpc

from tandem.stack.free_ports import free_ports
from tests.support.faults.supervisor import Supervised
from tests.support.security.canaries import (
    Canary,
    bytes_canary,
    digest_canary,
    found,
    pem_canary,
    text_canary,
    told_by,
)
from tests.support.security.canary_requests import CanaryRequests, Sent, send
from tests.support.security.collector import Collector
from tests.support.security.credentials import credentials_of
from tests.support.security.run_counts import run_count
from tests.support.security.secured_stack import SecuredStack

REQUEST_COUNT = run_count(120, 1_000)
CONCURRENT_COUNT = 8
TEXT = "the merger of Aldebaran and Zubenelgenubi is signed on Tuesday"
REQUEST_ID = "canary-request"
EXPORT_SECONDS = 60


def secrets_of(stack: SecuredStack, requests: CanaryRequests) -> list[Canary]:
    """Returns what must appear nowhere."""
    return [
        text_canary("token", stack.token),
        text_canary("another's token", requests.bad_token),
        digest_canary("token file", stack.token),
        digest_canary("admin token file", stack.admin_token),
        *(
            pem_canary(f"key of {name}", each.folder / "tls.key")
            for name, each in stack.files.items()
        ),
        text_canary("query and item text", requests.text),
        bytes_canary("image", requests.image[63:]),
        text_canary("secret setting", stack.collector_key),
    ]


async def test_secrets_are_never_logged(secured: SecuredStack, collector: Collector) -> None:
    """Not in logs, metrics, traces or what errors tell; which have what they should have."""
    requests = CanaryRequests(secured.token, TEXT, REQUEST_ID)
    sent = requests.take(REQUEST_COUNT)
    refusals = await send_all(secured, sent)
    await exported(collector, b"SearchItems")

    places = told(secured, collector)
    places["errors"] = b"\n".join(map(told_by, refusals))

    assert found(secrets_of(secured, requests), places) == []
    codes = Counter(error.code().name for error in refusals)
    # That the places that are searched hold something: ids, spans' names, reasons.
    for service in secured.service_names():
        assert REQUEST_ID.encode() in places[f"{service}.log"]
    assert b'"level": "debug"' in places["orchestrator.log"]
    assert b"EncodeContents" in places["spans"]
    assert b"TEXT_TOO_LONG" in places["errors"]
    assert b'reason="UNAUTHENTICATED"' in places["orchestrator metrics"]
    assert {"UNAUTHENTICATED", "INVALID_ARGUMENT", "NOT_FOUND", "DEADLINE_EXCEEDED"} <= codes.keys()
    assert 0.3 * len(sent) < len(refusals) < 0.9 * len(sent)
    sizes = {place: len(each) for place, each in places.items()}
    print(json.dumps({"requests": len(sent), "refused": codes, "bytes_looked_at": sizes}))


async def test_a_leak_in_each_place_is_found(
    secured: SecuredStack, collector: Collector, tmp_path: Path
) -> None:
    """The control: an orchestrator that tells all of them what it is asked, and by whom."""
    requests = CanaryRequests(secured.token, TEXT, REQUEST_ID)
    _, variables = secured.command("orchestrator")
    (metrics_port,) = free_ports(1)
    variables |= {
        "ORCHESTRATOR_ADDRESS": "127.0.0.1:0",
        "ORCHESTRATOR_METRICS_PORT": str(metrics_port),
    }
    command = [sys.executable, "-m", "tests.support.security.leaking_orchestrator"]
    leaking = Supervised(command, tmp_path / "leaking.log", variables)
    try:
        address = f"127.0.0.1:{await port_of(leaking)}"
        roots = grpc.ssl_channel_credentials(secured.authority.cert_pem.bytes())
        searches = [each for each in requests.take(20) if each.path.endswith("/SearchItems")][:2]
        async with grpc.aio.secure_channel(address, roots) as channel:
            refusals = [await send(channel, each) for each in searches]
        await exported(collector, TEXT[:24].encode())
        url = f"http://127.0.0.1:{metrics_port}/metrics"
        places = {
            "log": leaking.log().encode(),
            "metrics": await asyncio.to_thread(page, url),
            "spans": b"".join(collector.received),
            "errors": b"\n".join(told_by(error) for error in refusals if error is not None),
        }
    finally:
        leaking.kill()
        collector.received.clear()

    seen = {told.partition(":")[0] for told in found(secrets_of(secured, requests), places)}
    assert seen >= {
        *("token in log", "query and item text in log", "image in log"),
        *("query and item text in metrics", "query and item text in spans"),
        "query and item text in errors",
    }


async def send_all(stack: SecuredStack, sent: list[Sent]) -> list[grpc.aio.AioRpcError]:
    """Makes the calls, some at once; returns the refusals."""
    room = asyncio.Semaphore(CONCURRENT_COUNT)
    roots = grpc.ssl_channel_credentials(stack.authority.cert_pem.bytes())
    inside = credentials_of(stack.files["orchestrator"])
    channels = {
        name: grpc.aio.secure_channel(
            stack.address_of(name), roots if name == "orchestrator" else inside
        )
        for name in {each.service for each in sent}
    }

    async def one(each: Sent) -> grpc.aio.AioRpcError | None:
        async with room:
            return await send(channels[each.service], each)

    try:
        outcomes = await asyncio.gather(*map(one, sent))
    finally:
        for channel in channels.values():
            await channel.close()
    return [error for error in outcomes if error is not None]


def told(stack: SecuredStack, collector: Collector) -> dict[str, bytes]:
    """Returns all that the processes have written so far, by where."""
    places = {path.name: path.read_bytes() for path in stack.log_paths()}
    for name in (*stack.service_names(), "triton"):
        places[f"{name} metrics"] = page(stack.metrics_url(name))
        # With exemplars.
        places[f"{name} OpenMetrics"] = page(
            stack.metrics_url(name), "application/openmetrics-text"
        )
    places["spans"] = b"".join(collector.received)
    return places


def page(url: str, accept: str = "*/*") -> bytes:
    """Returns a page of metrics."""
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as response:
        body: bytes = response.read()
    return body


async def exported(collector: Collector, name: bytes) -> None:
    """Returns once the collector has a span with the name."""
    end_time = time.monotonic() + EXPORT_SECONDS
    while not any(name in each for each in collector.received):
        assert time.monotonic() < end_time, "no span came"
        await asyncio.sleep(0.1)


async def port_of(process: Supervised) -> int:
    """Returns the port that the process listens on."""
    end_time = time.monotonic() + 60
    while time.monotonic() < end_time and process.ending() is None:
        for line in process.log().splitlines():
            if '"listening"' in line:
                return int(json.loads(line)["port"])
        await asyncio.sleep(0.05)
    raise AssertionError(process.log())
