"""tandem.chassis.log: how much is written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tandem.chassis import log


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
        getattr(logging.getLogger("library"), name)(f"its {name}")
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("debug", [f"{whose} {each}" for each in ("debug", "info", "warning", "error")
                   for whose in ("our", "its")]),
        ("info", ["our info", "our warning", "its warning", "our error", "its error"]),
        ("warning", ["our warning", "its warning", "our error", "its error"]),
        ("error", ["our error", "its error"]),
    ],
)  # fmt: skip
def test_a_level_leaves_out_what_is_below_it(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: list[str]
) -> None:
    """Libraries speak from WARNING up, and from DEBUG only where that was asked for."""
    monkeypatch.setenv("LOG_LEVEL", name)

    assert written(log.load_log_level_or_exit()) == expected


def test_a_level_that_is_none_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name; another's variable that begins alike is left alone."""
    monkeypatch.setenv("LOG_FOLDER", "/somewhere")
    assert log.load_log_level_or_exit() == logging.INFO
    monkeypatch.setenv("LOG_LEVEL", "loud")

    with pytest.raises(SystemExit) as caught:
        log.load_log_level_or_exit()

    assert caught.value.code == 2
    assert (
        "LOG_LEVEL is 'loud'; it is one of debug, info, warning, error" in capsys.readouterr().err
    )
