"""What callers who keep connections open do to a service's files and to its log."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from structlog.testing import capture_logs

from tandem.chassis.process.file_limit import brief_when_scarce
from tests.chassis.serve.test_serve import started

SPARE_COUNT = 10
SCARCE_SECONDS = 3.0


def open_file_count(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_running_out_of_files_does_not_fill_the_log(tmp_path: Path) -> None:
    """asyncio reports each attempt: a thousand lines a second were written."""
    async with started(tmp_path) as service:
        await service.event("serving")
        limit = open_file_count(service.process.pid) + SPARE_COUNT
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        reading = asyncio.create_task(service.end())
        with contextlib.ExitStack() as held:
            for port in (service.port, service.metrics_port):
                for _ in range(2 * SPARE_COUNT):
                    held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            await asyncio.sleep(SCARCE_SECONDS)
        await asyncio.to_thread(wait_until_ready, service.metrics_port)
        service.process.terminate()
        async with asyncio.timeout(60):
            code = await reading

    told = [each for each in service.events if each["level"] == "error"]
    assert {each["event"] for each in told} == {"connections cannot be accepted"}, told
    # gRPC's own core writes one line a second.
    assert len(service.output) < 30, service.output
    assert (told[0]["cause"], told[0]["open_file_limit"]) == ("Too many open files", limit)
    assert code == 0


def wait_until_ready(metrics_port: int) -> None:
    end_time = time.monotonic() + 60
    while True:
        try:
            # It raises for every status but that of a ready service.
            urlopen(f"http://127.0.0.1:{metrics_port}/ready", timeout=10).close()
            return
        except OSError:
            if time.monotonic() > end_time:
                raise
            time.sleep(0.1)


def test_other_faults_and_a_later_minute_are_reported() -> None:
    now, others = 0.0, list[dict[str, Any]]()
    loop = asyncio.new_event_loop()
    handle = brief_when_scarce("here", lambda _, context: others.append(context), lambda: now)
    counts = []

    with contextlib.closing(loop), capture_logs() as told:
        for now in (0.0, 1.0, 59.0, 61.0, 62.0):  # noqa: B007 (the handler's clock reads it)
            handle(loop, {"exception": OSError(errno.EMFILE, "no more")})
            counts.append(len(told))
        handle(loop, {"exception": OSError(errno.EPIPE, "gone")})
        handle(loop, {"message": "a task was destroyed"})

    assert counts == [1, 1, 1, 2, 2]
    assert len(others) == 2


def test_a_service_may_open_as_many_files_as_the_system_allows() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 256));"
        "from tandem.chassis.process.file_limit import allow_open_files; print(allow_open_files(),"
        "resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert ran.stdout.strip() == "256 (256, 256)", ran.stderr
