"""`tandem search --where`: what is sent, what is shown, and what is refused before."""

import asyncio

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.contract.filtering.attribute_wire import attributes_to_proto
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server


async def found_one(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """One item, whose attributes are returned where they were requested."""
    item = pb.RankedItem(item_id="emoji[red]", final_rank=1)
    attributes = attributes_to_proto({"style": "noto", "tags": ("a", "b"), "hidden": False, "n": 3})
    for name, message in attributes.items() if request.attributes_included else ():
        item.attributes[name].CopyFrom(message)
    return pb.SearchItemsResponse(items=[item])


async def run(*arguments: str) -> tuple[Result, list[object]]:
    """Returns what the command did, and what the server was asked."""
    async with search_server(found_one) as (address, told):
        command = ["search", "two dogs", *arguments, "--address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        return result, told.requests


async def test_attributes_are_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they would be written, by name."""
    monkeypatch.setenv("COLUMNS", "200")
    result, _ = await run("--attributes")

    assert result.exit_code == 0, result.output
    assert "emoji[red]" in result.output
    for shown in ("style=noto", "tags=a|b", "hidden=false", "n=3"):
        assert shown in result.output


async def test_a_syntax_error_in_where_is_pointed_at_and_nothing_is_sent() -> None:
    """The mark stands below the character."""
    result, requests = await run("--where", "style = noto and n > many")

    assert result.exit_code == 2
    assert requests == []
    *_, why, shown, mark = result.output.rstrip("\n").split("\n")
    assert why == "--where: a number is expected after >, not 'many'"
    assert shown[mark.index("^") :] == "many"
