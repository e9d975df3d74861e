"""`tandem remove` and `tandem index drop`."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tandem.cli.app import app
from tandem.errors import IndexIdInvalid
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import FULL, serving_search


async def nothing(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
    """No search is made."""
    return pb.SearchItemsResponse(coverage=FULL)


def run(*arguments: str, typed: str = "") -> tuple[Result, list[Any]]:
    """Returns what the command did and what the server was asked."""
    with serving_search(nothing) as (address, service):
        result = CliRunner().invoke(app, [*arguments, "--address", address], input=typed)
    return result, service.requests


def test_items_are_removed_in_batches_and_counted() -> None:
    """Each id once, as many at a time as a call takes."""
    ids = [f"[/x]-{n}" for n in range(300)]

    result, requests = run("remove", *ids, ids[0], "--index", "pets")

    assert result.exit_code == 0, result.output
    assert "pets: 300 items removed" in result.stdout
    assert [len(each.item_ids) for each in requests] == [256, 44]
    assert "were not in" not in result.stderr


@pytest.mark.parametrize(
    ("words", "typed", "is_dropped"),
    [(["--yes"], "", True), ([], "y\n", True), ([], "n\n", False), ([], "", False)],
)
def test_an_index_is_dropped_only_on_confirmation(
    words: list[str], typed: str, *, is_dropped: bool
) -> None:
    """Call by call until nothing is left; a terminal that says nothing has not said yes."""
    result, requests = run("index", "drop", "pets", *words, typed=typed)

    assert (result.exit_code == 0) is is_dropped
    assert requests == [pb.RemoveIndexRequest(index_id="pets")] * (2 if is_dropped else 0)
    assert ("pets: gone, with 6 items" in result.stdout) is is_dropped


@pytest.mark.parametrize("name", ["pets@", "pets@02", "pets@2@2"])
def test_a_name_that_only_resembles_a_generation_drops_none(name: str) -> None:
    """`pets@02` is not `pets@2`: nobody is asked."""
    result, _ = run("index", "drop", name, "--yes")

    assert isinstance(result.exception, IndexIdInvalid)
