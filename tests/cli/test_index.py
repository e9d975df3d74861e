"""`tandem index` against a real index_svc."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tests.support.index_svc.encoded_items import upsert_request
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import image_item, text_item


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Of a shard with 600 images and 40 texts."""
    async with running(tmp_path / "shard") as (process, channel):
        stub = IndexServiceStub(channel)
        for start in range(0, 600, 200):
            items = [image_item(f"image-{number}", number) for number in range(start, start + 200)]
            await stub.UpsertItems(upsert_request(items))
        await stub.UpsertItems(upsert_request([text_item(f"text-{n}", n) for n in range(40)]))
        yield f"127.0.0.1:{process.port}"


async def run(address: str, *arguments: str) -> Result:
    command = ["index", *arguments, "--shard-address", address]
    return await asyncio.to_thread(CliRunner().invoke, app, command)


async def test_describe_prints_the_state_of_an_index(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for its texts and one for its images; what is tuned shows there."""
    monkeypatch.setenv("COLUMNS", "100")
    before = await run(address, "describe")
    tuned = await run(
        address, "tune", "scenes", "--modality", "image", "--type", "IVF8,Flat",
        "--parameter", "nprobe=4",
    )  # fmt: skip
    end_time = time.monotonic() + 60
    while (
        "IVF8,Flat nprobe=4" not in (described := await run(address, "describe", "scenes")).output
    ):
        assert time.monotonic() < end_time, described.output
        await asyncio.sleep(0.1)

    heading, *rows = [line.split() for line in before.output.splitlines()]
    assert heading == [
        "index",
        "shard",
        "of",
        "type",
        "items",
        "dead",
        "tail",
        "MB",
        "recall",
        "live",
    ]
    assert sorted(row[:5] for row in rows) == [
        ["scenes", "0", "image", "Flat", "600"],
        ["scenes", "0", "text", "Flat", "40"],
    ]
    assert tuned.exit_code == 0


async def test_advise_prints_the_choices_and_the_command_for_the_best(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = await run(
        address,
        "advise",
        "scenes",
        "--type",
        "Flat",
        "--type",
        "IVF4,Flat",
        "--type",
        "IVF9999,Flat",
    )

    assert result.exit_code == 0, result.output
    assert "recall@20" in result.output
    assert any(
        line.split()[0] == "IVF4,Flat" and "nprobe=" in line
        for line in result.output.splitlines()
        if line.strip()
    )
    assert "9999" in result.output
    assert "tandem index tune scenes --modality image --type" in result.output
