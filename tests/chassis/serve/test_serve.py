"""serve.server: a process from its cold start to its end, as an operator sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tandem.chassis.calls.channels import open_channel
from tandem.chassis.health.health import LIVENESS
from tandem.stack.free_ports import free_ports
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times

ROOT = Path(__file__).parents[3]
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def free_port() -> int:
    """Returns a port that was free a moment ago."""
    [port] = free_ports(1)
    return port


@dataclass
class Service:
    """A service process: where it listens, what it logs, and the folder whose files it obeys."""

    process: Process
    port: int
    metrics_port: int
    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)
    output: list[bytes] = field(default_factory=list)
    """Every line of its stderr that was read, events or not."""

    async def event(self, name: str) -> dict[str, Any]:
        """Reads the log up to the next event of that name."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._read(line)
            if self.events and self.events[-1]["event"] == name:
                return self.events[-1]
        raise AssertionError(f"the log ended before {name!r}: {self.events}")

    async def end(self) -> int:
        """Waits for the process's end and returns its exit code."""
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self._read(line)
        return await self.process.wait()

    def _read(self, line: bytes) -> None:
        self.output.append(line)
        # gRPC's C++ core writes its own lines to stderr, past every Python logger.
        if line.startswith(b"{"):
            self.events.append(json.loads(line))


@asynccontextmanager
async def started(folder: Path, **settings: object) -> AsyncIterator[Service]:
    """Starts `tests.support.chassis.lone_service` and ends it, whatever happens."""
    settings = {"port": free_port(), "metrics_port": free_port(), "folder": folder} | settings
    arguments = [f"{name}={value}" for name, value in settings.items()]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.chassis.lone_service",
        *arguments,
        cwd=ROOT,
        stderr=PIPE,
    )
    try:
        yield Service(
            process, int(str(settings["port"])), int(str(settings["metrics_port"])), folder
        )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def began(call: grpc.aio.UnaryUnaryCall, folder: Path) -> None:
    """Waits until the service has `call` in hand."""
    while not (folder / "began").exists():
        assert not call.done()
        await asyncio.sleep(0.01)


async def health(channel: grpc.aio.Channel, name: str = "") -> int:
    """Asks for the health of the process as a whole, or of `name`."""
    request = health_pb2.HealthCheckRequest(service=name)
    answer = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=60)
    status: int = answer.status
    return status


async def test_health_waits_for_warmth_and_follows_the_canary(tmp_path: Path) -> None:
    (tmp_path / "cold").touch()
    async with started(tmp_path) as service, open_channel(f"127.0.0.1:{service.port}") as channel:
        cause = await service.event("not warm yet")
        assert await health(channel) == NOT_SERVING
        assert await health(channel, LIVENESS) == SERVING

        (tmp_path / "cold").unlink()
        await service.event("serving")
        assert await health(channel) == SERVING

        (tmp_path / "sick").touch()
        await service.event("not serving")
        assert await health(channel) == NOT_SERVING
        assert await health(channel, LIVENESS) == SERVING

        (tmp_path / "sick").unlink()
        await service.event("serving again")
        assert await health(channel) == SERVING

    assert cause["reason"] == "MODEL_UNAVAILABLE"
    assert "model lone does not answer: it is cold" in cause["cause"]


async def test_a_signal_drains_and_exits_0(tmp_path: Path) -> None:
    """Health flips first, a late caller who did not look is answered, the call in flight ends
    well, what was opened is closed.
    """

    async def check(factor: float) -> None:
        folder = tmp_path / f"{factor}"
        folder.mkdir()
        await check_drain(folder, factor)

    await holds_with_longer_times(check)


async def check_drain(tmp_path: Path, factor: float) -> None:
    """Where all times are so many times as long."""
    async with (
        started(tmp_path, drain_notice_seconds=0.5 * factor) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        await service.event("serving")
        stub = SearchServiceStub(channel)
        in_flight = stub.SearchItems(pb.SearchItemsRequest(index_id=f"{factor:.1f}"), timeout=60)
        await began(in_flight, tmp_path)

        service.process.send_signal(signal.SIGINT)
        await service.event("draining")
        status = await health(channel)
        late = await stub.SearchItems(pb.SearchItemsRequest(index_id="0"), timeout=60)
        answer = await in_flight
        code = await service.end()

    assert status == NOT_SERVING
    assert late == answer == pb.SearchItemsResponse()
    assert (tmp_path / "closed").exists()
    assert code == 0
    assert service.events[-1]["event"] == "stopped"


async def test_a_call_longer_than_the_grace_is_cancelled(tmp_path: Path) -> None:
    """The drain ends when it said it would."""
    async with (
        started(tmp_path, grace_seconds=0.2) as service,
        open_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        await service.event("serving")
        endless = SearchServiceStub(channel).SearchItems(
            pb.SearchItemsRequest(index_id="60"), timeout=30
        )
        await began(endless, tmp_path)

        service.process.terminate()
        async with asyncio.timeout(60):
            code = await service.end()

        assert await endless.code() is not grpc.StatusCode.OK
    assert code == 0
    assert (tmp_path / "closed").exists()


async def test_health_watchers_do_not_delay_a_shutdown(tmp_path: Path) -> None:
    async with (
        started(tmp_path, drain_notice_seconds=0.2, grace_seconds=20) as service,
        open_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        await service.event("serving")
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        heard: list[Any] = []

        async with asyncio.timeout(60):
            async for answer in watch:
                if not heard:
                    service.process.terminate()
                heard.append(answer.status)
            code = await service.end()

    assert heard == [SERVING, NOT_SERVING]
    assert code == 0


async def test_a_signal_before_warmth_ends_the_process_too(tmp_path: Path) -> None:
    (tmp_path / "cold").touch()
    async with started(tmp_path) as service:
        await service.event("not warm yet")

        service.process.terminate()
        code = await service.end()

    assert code == 0
    assert (tmp_path / "closed").exists()


async def test_a_start_that_cannot_succeed_ends_with_a_fault(tmp_path: Path) -> None:
    (tmp_path / "wrong").touch()
    async with started(tmp_path) as service:
        assert service.process.stderr is not None
        output = await service.process.stderr.read()
        code = await service.process.wait()

    assert code == 1
    assert b"ValueError: another shard's volume" in output
    assert (tmp_path / "closed").exists()


async def test_a_metrics_port_in_use_stops_the_start_by_name(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        async with started(tmp_path, metrics_port=holder.getsockname()[1]) as service:
            code = await service.end()

    (event,) = service.events
    assert code == 1
    assert event["event"] == "cannot listen"
    assert event["address"] == f"127.0.0.1:{service.metrics_port}"


async def test_two_processes_cannot_share_a_port(tmp_path: Path) -> None:
    """gRPC's default lets them."""
    async with started(tmp_path) as first:
        await first.event("serving")
        async with started(tmp_path, port=first.port) as second:
            code = await second.end()

    assert code == 1
    assert second.events[0]["event"] == "cannot listen"


async def test_prometheus_can_scrape(tmp_path: Path) -> None:
    async with started(tmp_path) as service, open_channel(f"127.0.0.1:{service.port}") as channel:
        await service.event("serving")
        await SearchServiceStub(channel).SearchItems(
            pb.SearchItemsRequest(index_id="0"), timeout=60
        )
        page = await asyncio.to_thread(scrape, service.metrics_port)

    assert (
        'tandem_rpc_duration_seconds_count{code="OK",method="SearchItems",service="lone"} 1.0'
        in page
    )
    # It sleeps for 0 s, which a busy machine may take longer over than the finest bucket says.
    assert 'tandem_lone_stage_duration_seconds_bucket{le="0.0005",stage="sleep"}' in page
    assert 'tandem_lone_stage_duration_seconds_count{stage="sleep"} 1.0' in page
    assert 'tandem_rpc_inflight_count{service="lone"} 0.0' in page
    assert 'tandem_serving{service="lone"} 1.0' in page
    assert 'tandem_build_info{service="lone",version=' in page
    assert "process_resident_memory_bytes" in page


def scrape(port: int) -> str:
    """Returns what Prometheus would read."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        text: str = response.read().decode()
        return text


def http_status(port: int, path: str) -> int:
    """Returns the status of a GET."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            status: int = response.status
            return status
    except HTTPError as error:
        return error.code


def asked_for_services(port: int) -> grpc.StatusCode:
    """Asks the reflection, and returns what came of it.

    By the synchronous API: grpc.aio says INTERNAL at times where a stream of requests is refused.
    """
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([asked]))
        try:
            next(call)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("is_open", "code", "metrics_status"),
    [("true", grpc.StatusCode.OK, 200), ("false", grpc.StatusCode.UNIMPLEMENTED, 404)],
)
async def test_side_doors_can_be_closed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_open: str,
    code: grpc.StatusCode,
    metrics_status: int,
) -> None:
    monkeypatch.setenv("DOOR_REFLECTION", is_open)
    monkeypatch.setenv("DOOR_METRICS", is_open)
    async with started(tmp_path) as service, open_channel(f"127.0.0.1:{service.port}") as channel:
        await service.event("serving")

        assert await asyncio.to_thread(asked_for_services, service.port) == code
        assert await asyncio.to_thread(http_status, service.metrics_port, "/metrics") == (
            metrics_status
        )
        assert await asyncio.to_thread(http_status, service.metrics_port, "/ready") == 200
        assert await health(channel) == SERVING


async def test_a_service_whose_grpc_server_ended_exits_with_an_error(tmp_path: Path) -> None:
    """At once: there is nothing to drain. A supervisor then starts another process."""
    async with started(tmp_path, drain_notice_seconds=300) as service:
        await service.event("serving")
        (tmp_path / "ended").touch()
        async with asyncio.timeout(60):
            code = await service.end()

    assert code == 1
    assert service.events[-1]["event"] == "the gRPC server has ended; exiting"


async def test_calls_that_stay_open_do_not_hide_a_server_that_ended_by_a_fault(
    tmp_path: Path,
) -> None:
    """grpc.aio itself waits for them: callers' watches, which never end."""
    async with (
        started(tmp_path, drain_notice_seconds=300) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        await service.event("serving")
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        (tmp_path / "broken").touch()
        ending = asyncio.create_task(service.end())
        async with asyncio.timeout(60):
            while not ending.done():
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await health(channel)
                await asyncio.sleep(0.1)
        watch.cancel()

    assert ending.result() != 0


async def test_a_start_logs_what_is_exposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens.toml").write_text("", "utf-8")
    monkeypatch.setenv("ACCESS_TOKEN_FILE", str(tmp_path / "tokens.toml"))
    async with started(tmp_path, also="tandem.v1.IndexService") as service:
        await service.event("serving")

    (warning,) = [event for event in service.events if event["level"] == "warning"]
    assert warning["event"] == "internal methods need no token"
    assert "TLS_PEER_NAMES" in warning["mend"]


async def test_a_blocked_loop_is_not_ready_but_still_live(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as service:
        await service.event("serving")
        before = await asyncio.to_thread(http_status, service.metrics_port, "/ready")
        (tmp_path / "stuck").touch()
        try:
            await until_ready_is(503, service)
            live = await asyncio.to_thread(http_status, service.metrics_port, "/live")
        finally:
            (tmp_path / "stuck").unlink()
        await until_ready_is(200, service)
    assert (before, live) == (200, 200)


async def until_ready_is(status: int, service: Service) -> None:
    """Returns once the probe says so."""
    async with asyncio.timeout(60):
        while await ready_status(service) != status:  # noqa: ASYNC110 (a probe has no event)
            await asyncio.sleep(0.05)


async def ready_status(service: Service) -> int:
    """Asks the probe once."""
    return await asyncio.to_thread(http_status, service.metrics_port, "/ready")
