"""health.metrics_server: probes are answered whatever else is asked of the metrics port."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import structlog
from prometheus_client import CollectorRegistry, Gauge

from tandem.chassis.health.metrics_server import MetricsServer
from tandem.chassis.telemetry import log


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[dict[str, object]]]]:
    """Gives what was logged; leaves logging as it was."""
    stream = io.StringIO()
    log.configure("door", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    logging.getLogger().setLevel(logging.WARNING)


def opened_door(registry: CollectorRegistry | None = None, **settings: float) -> MetricsServer:
    """Returns a door on the loopback, with a metric behind it."""
    if registry is None:
        registry = CollectorRegistry()
        Gauge("tandem_serving", "1 while serving.", registry=registry).set(1)
    return MetricsServer("127.0.0.1", 0, registry, **settings)  # type: ignore[arg-type]


def got(door: MetricsServer, path: str) -> tuple[int, str]:
    """Returns a page's status and text."""
    try:
        with urlopen(f"http://127.0.0.1:{door.port}{path}", timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def told(door: MetricsServer, sent: bytes) -> bytes:
    """Returns all that comes back for raw bytes."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as connection:
        connection.sendall(sent)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def test_pages() -> None:
    """Metrics, plain or as OpenMetrics; probes; nothing else."""
    door = opened_door()
    try:
        assert got(door, "/live")[0] == got(door, "/ready")[0] == 200
        assert "tandem_serving 1.0" in got(door, "/metrics?name[]=tandem_serving")[1]
        assert got(door, "/etc/passwd")[0] == 404
        page = told(door, b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n")
        assert page.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text")
        assert page.endswith(b"# EOF\n")
    finally:
        door.close()


def test_an_unknown_metrics_format_is_answered_in_plain_text(
    log_lines: Callable[[], list[dict[str, object]]],
) -> None:
    door = opened_door()
    try:
        accept = b"Accept: application/openmetrics-text; version=abc\r\n"
        page = told(door, b"GET /metrics HTTP/1.1\r\n" + accept + b"\r\n")
    finally:
        door.close()
    assert page.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain")
    assert log_lines() == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"GET /live HTTP/1.1\r\n" + b"x: y\r\n" * 5_000 + b"\r\n", b"431"),
    ],
)
def test_what_is_not_a_request_for_a_page_is_refused(
    log_lines: Callable[[], list[dict[str, object]]], sent: bytes, status: bytes
) -> None:
    door = opened_door()
    try:
        assert told(door, sent).split(b" ")[1] == status
    finally:
        door.close()
    assert log_lines() == []


def test_half_requests_keep_no_probe_waiting() -> None:
    door = opened_door(visit_seconds=300.0)
    thread_count = threading.active_count()
    try:
        with ExitStack() as stack:
            for _ in range(300):
                half = socket.create_connection(("127.0.0.1", door.port), timeout=60)
                stack.enter_context(half)
                half.sendall(b"GET /metrics HTT")
            status, _ = got(door, "/ready")
            grown = threading.active_count() - thread_count
            first = stack.pop_all()
        with first:
            assert (status, grown <= 2) == (200, True)
    finally:
        door.close()


def test_an_incomplete_request_times_out() -> None:
    door = opened_door(visit_seconds=0.3)
    try:
        with socket.create_connection(("127.0.0.1", door.port), timeout=0.05) as half:
            end_time = time.monotonic() + 30
            is_open = True
            while is_open and time.monotonic() < end_time:
                try:
                    half.sendall(b"G")
                    is_open = half.recv(1) != b""
                except TimeoutError:
                    pass
                except OSError:
                    is_open = False
        assert not is_open
    finally:
        door.close()


def test_a_slow_page_delays_no_probe() -> None:
    going_on = threading.Event()
    registry = CollectorRegistry()
    Gauge("stuck", "Is stuck.", registry=registry).set_function(
        lambda: float(going_on.wait(timeout=60))
    )
    door = opened_door(registry)
    try:
        with socket.create_connection(("127.0.0.1", door.port), timeout=60) as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert got(door, "/live")[0] == 200
            going_on.set()
            assert scraper.recv(12) == b"HTTP/1.1 200"
    finally:
        going_on.set()
        door.close()


def test_a_metric_that_fails_is_a_line_of_the_log(
    log_lines: Callable[[], list[dict[str, object]]], capfd: pytest.CaptureFixture[str]
) -> None:
    registry = CollectorRegistry()
    Gauge("broken", "Is broken.", registry=registry).set_function(lambda: 1 / 0)
    door = opened_door(registry)
    try:
        status, _ = got(door, "/metrics")
        assert got(door, "/live")[0] == 200
    finally:
        door.close()

    (line,) = log_lines()
    assert (status, line["event"]) == (500, "metrics cannot be rendered")
    assert "ZeroDivisionError" in str(line["exception"])
    assert capfd.readouterr().err == ""
