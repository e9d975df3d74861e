"""access.call_log: strangers fill no log, and what a known caller gets is in it."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tandem.chassis.access.call_log import CallLog
from tandem.chassis.access.guard import Guard
from tandem.chassis.access.tokens import TokenFile
from tests.support.chassis.open_door import SEARCH, address, connection, raw, refusal


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """Knows one caller, who may only write."""
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[tokens.someone]\nsha256 = "{sha256(b"token").hexdigest()}"\n'
        'scopes = ["write"]\nindexes = ["*"]\n'
    )
    return Guard(TokenFile(path))


async def lines_of(log: CallLog, codes: list[str]) -> list[dict[str, Any]]:
    """Returns what is logged of calls that end so."""
    with capture_logs() as lines:
        for each in codes:
            log.write(each, {})
        await asyncio.sleep(0)  # The lines are written after what the loop has to do.
    return [dict(each) for each in lines]


async def test_refused_strangers_have_one_line_a_second_after_some() -> None:
    now = 0.0
    log = CallLog(clock=lambda: now)

    refused = await lines_of(log, ["UNAUTHENTICATED"] * 1_000)
    others = await lines_of(log, ["OK", "UNAVAILABLE"] * 500)
    now = 1.0
    later = await lines_of(log, ["CANCELLED", "INVALID_ARGUMENT"])

    assert len(refused) == 200
    assert len(others) == 1_000
    assert [each["code"] for each in later] == ["CANCELLED"]
    assert later[0]["unlogged_count"] == 800


async def test_calls_of_a_stranger_are_left_out_of_a_services_log(guard: Guard) -> None:
    with capture_logs() as lines:
        async with address(guard) as to, connection(to) as channel:
            for _ in range(25):
                calls = [raw(channel, SEARCH)() for _ in range(10)]
                assert {await refusal(each) for each in calls} == {"UNAUTHENTICATED"}
    assert 200 <= sum(each["event"] == "call served" for each in lines) < 250
