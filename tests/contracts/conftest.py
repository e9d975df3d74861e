"""Records what the contract of shards shows, where `make test-engines` runs it over every kind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from tandem.stages.shard import Shard
from tests.support.engines import contract_record
from tests.support.engines.shard_kinds import SHARDS, Kind

_FOUND: contract_record.Record = {}
_KINDS = {kind for kinds in contract_record.COLUMNS.values() for kind in kinds}


@pytest.fixture(params=SHARDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return SHARDS[request.param]


@pytest.fixture
async def shard(kind: Kind, tmp_path: Path) -> AsyncIterator[Shard]:
    """Yields an empty shard of each kind."""
    async with kind.open(tmp_path / "shard") as shard:
        yield shard


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Notes how a test ended over its kind of shard."""
    report = yield
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if item.path.name in contract_record.SUITE and "kind" in parameters:
        outcome = _outcome(report)
        if outcome is not None:
            outcomes = _FOUND.setdefault(item.originalname, {})
            if outcomes.get(parameters["kind"], contract_record.YES) == contract_record.YES:
                outcomes[parameters["kind"]] = outcome
    return report


def pytest_sessionfinish(exitstatus: int) -> None:
    """Keeps the record of a whole run without a failure."""
    if (
        "TANDEM_ENGINE_RECORD" in os.environ
        and exitstatus == pytest.ExitCode.OK
        and all(kinds.keys() == _KINDS for kinds in _FOUND.values())
    ):
        contract_record.keep(_FOUND)


def _outcome(report: pytest.TestReport) -> str | None:
    if report.skipped:
        assert isinstance(report.longrepr, tuple)
        return "no: " + report.longrepr[2].removeprefix("Skipped: ")
    if report.when != "call":
        return None
    said = dict(report.user_properties)
    return str(said.get(contract_record.DIFFERS, contract_record.YES))
