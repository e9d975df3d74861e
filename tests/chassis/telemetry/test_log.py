"""telemetry.log: how much is written."""

from __future__ import annotations

import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tandem.chassis.telemetry import log
from tandem.chassis.telemetry.withheld import WITHHELD
from tandem.errors import IndexNotFound


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leaves logging as it was for the tests that follow."""
    yield
    structlog.reset_defaults()
    logging.getLogger().setLevel(logging.WARNING)


def written(level: int) -> list[str]:
    """Returns the events that come out of one of each level, of ours and of a library."""
    stream = io.StringIO()
    log.configure("scripted", stream, level)
    for name in ("debug", "info", "warning", "error"):
        getattr(log.get_logger(), name)(f"our {name}")
        getattr(logging.getLogger("library"), name)(f"its {name}, %s", "said of")
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("debug", [told for each in ("debug", "info", "warning", "error")
                   for told in (f"our {each}", f"its {each}, %s")]),
        ("info", ["our info", "our warning", "its warning, %s", "our error", "its error, %s"]),
    ],
)  # fmt: skip
def test_a_level_suppresses_lower_ones(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: list[str]
) -> None:
    monkeypatch.setenv("LOG_LEVEL", name)

    assert written(log.load_log_level_or_exit()) == expected


def test_a_line_names_its_own_service() -> None:
    stream = io.StringIO()
    log.configure("orchestrator", stream)

    log.get_logger().info("serving")
    log.get_logger().bind(service="encoder").info("serving")

    lines = map(json.loads, stream.getvalue().splitlines())
    assert [line["service"] for line in lines] == ["orchestrator", "encoder"]


def test_an_unknown_level_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOG_FOLDER", "/somewhere")
    assert log.load_log_level_or_exit() == logging.INFO
    monkeypatch.setenv("LOG_LEVEL", "loud")

    with pytest.raises(SystemExit) as caught:
        log.load_log_level_or_exit()

    assert caught.value.code == 2
    assert (
        "LOG_LEVEL is 'loud'; it is one of debug, info, warning, error" in capsys.readouterr().err
    )


SECRET = "Zubenelgenubi-4711"


def lines_of(name: str, *said: object, fault: BaseException | None = None) -> str:
    """Returns what comes out when a library's logger of that name says something."""
    stream = io.StringIO()
    log.configure("scripted", stream, logging.DEBUG)
    logging.getLogger(name).error(*said, exc_info=fault)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "said", "event"),
    [
        ("library", ("asked by %s", SECRET), "asked by %s"),
        ("library", (f"asked by {SECRET}",), WITHHELD),
        ("library", (ValueError(SECRET),), "ValueError"),
        ("grpc._cython.cygrpc", (f"Unexpected [{SECRET}] raised",), "Unexpected"),
    ],
)  # fmt: skip
def test_a_librarys_line_is_cut_down_to_its_kind(
    name: str, said: tuple[object, ...], event: str
) -> None:
    """The line says where it came from; what the library was given to say is left out."""
    try:
        raise KeyError(SECRET) from ValueError(SECRET)
    except KeyError as error:
        told = lines_of(name, *said, fault=error)

    line = json.loads(told)
    assert SECRET not in told
    assert (line["event"], line["logger"]) == (event, name)
    assert line["place"].startswith("test_log.py:")
    assert "ValueError\n" in line["exception"]
    assert line["exception"].endswith("KeyError")
    assert "test_log.py" in line["exception"]


def test_an_undecodable_header_is_not_logged() -> None:
    assert lines_of("grpc._cython.cygrpc", "Invalid encoding on %s", SECRET.encode()) == ""


def test_the_systems_message_of_a_fault_is_logged() -> None:
    stream = io.StringIO()
    log.configure("scripted", stream)
    for fault in (OSError(errno.ENOSPC, SECRET, SECRET), IndexNotFound(index_id=SECRET)):
        log.get_logger().error("fault", exc_info=fault)

    assert SECRET not in stream.getvalue()
    assert "OSError: [Errno 28] No space left on device" in stream.getvalue()
    assert "IndexNotFound: INDEX_NOT_FOUND" in stream.getvalue()


def test_our_own_lines_are_logged_whole() -> None:
    """Those of packages that have the standard library's loggers too."""
    line = json.loads(lines_of("tandem.local.item_store.group_commit", "the store is %s", "full"))

    assert line["event"] == "the store is full"


STRAY_FAULTS = f"""
import threading, warnings
from tandem.chassis.telemetry import log
log.configure("stray")
log.log_stray_faults()
class Unraisable:
    def __del__(self):
        raise ValueError("{SECRET}")
def fail():
    raise ValueError("{SECRET}")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Unraisable()
warnings.warn("{SECRET}")
"""


def test_faults_that_nothing_catches_are_lines_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STRAY_FAULTS], capture_output=True, text=True, timeout=60, check=True
    )

    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    faults = ["a thread ended with an exception", "an exception could not be raised"]
    assert events == [*faults, WITHHELD]
    assert SECRET not in done.stderr


FULL_DISK = """
import logging
from tandem.chassis.telemetry import log
log.configure("full")
for _ in range(1_000):
    log.get_logger().info("a line" * 20)
    logging.getLogger("other").warning("another")
print("served")
"""


def test_a_log_that_a_full_disk_refuses_fails_nothing() -> None:
    """Neither the call that logs nor the end of the process, whose status would be 120."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", FULL_DISK],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            timeout=60,
            check=False,
        )

    assert (done.returncode, done.stdout) == (0, "served\n")
