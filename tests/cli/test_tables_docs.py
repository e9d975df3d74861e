"""docs/tables.md: its table is read as the page says, and its commands and its Python run."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.contract.filtering.attribute_wire import attributes_from_proto
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import all_stored, search_server

PAGE = (Path(__file__).parents[2] / "docs/tables.md").read_text()


def block(language: str) -> str:
    """Returns the page's first example in the language."""
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


async def test_the_page_stores_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command and from Python; what the command says is on the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.csv").write_text(block("csv"))
    ingest, search, *_ = block("sh").splitlines()
    async with search_server(ingest=all_stored) as (address, told):
        command = [*shlex.split(ingest)[1:], "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        code = block("python").replace("127.0.0.1:7400", address)
        await asyncio.to_thread(exec, compile(code, "docs/tables.md", "exec"), {})
        searched = [*shlex.split(search)[1:], "--address", address]
        found = await asyncio.to_thread(CliRunner().invoke, app, searched)

    assert result.exit_code == 0, result.output
    assert "the column 'on sale' is the attribute on_sale" in result.output
    assert found.exit_code != 2, found.output
    requests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    assert {each.index_id for each in requests} == {"shop"}
    items = [item for each in requests for item in each.items]
    by_command, from_python = items[:3], items[3:]
    assert [each.content.text for each in by_command] == [
        "a red cup of clay",
        "a blue cup of glass",
        "a jug, tall and white",
    ]
    attributes = {each.item_id: attributes_from_proto(each.attributes) for each in by_command}
    assert attributes["cup-1"] == {
        "price": 19.99,
        "stock": 3,
        "added": "2026-11-28",
        "on_sale": True,
        "zip": "01067",
        "split": "test",
        "language": (),
    }
    assert "stock" not in attributes["jug-1"]
    assert attributes_from_proto(from_python[0].attributes)["price"] == 19.99
