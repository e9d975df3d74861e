"""Refusals at the command line name the variable or option that fixes them there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import typer

from tandem.chassis.access.tokens import Caller, Grant, Scope
from tandem.cli.app import app
from tandem.cli.command_line import run
from tandem.errors import PermissionDenied, TandemError, TextTooLong, Unauthenticated
from tandem.v1 import search_service_pb2 as pb
from tests.cli.test_search import serving_search

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()


def denied(scope: Scope) -> PermissionDenied:
    caller = Caller(Grant("team-a", frozenset(set(Scope) - {scope}), frozenset({"*"})))
    with pytest.raises(PermissionDenied) as caught:
        caller.check_scope(scope)
    return caught.value


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unauthenticated(why="it brings no token"), ["it brings no token; set TANDEM_TOKEN"]),
        (denied(Scope.SEARCH), ["team-a", "may not search", "right 'search'", "TANDEM_TOKEN"]),
        (TextTooLong(got=100, limit=64, unit="tokens"), ["--truncation-policy truncate"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_says_how_to_fix_it(
    error: TandemError,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refuse(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        raise error

    with serving_search(refuse) as (address, _):
        monkeypatch.setattr(sys, "argv", ["tandem", "search", "x", "--address", address])
        status = run(app)

    told = capsys.readouterr().err
    assert status == 1
    for word in words:
        assert word in told
    assert "authorization" not in told.splitlines()[-1]


def test_the_page_says_of_each_command_what_right_it_needs() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`([a-z ]+)`", row)}
    root = typer.main.get_command(app)
    calling = set()
    for group, command in root.commands.items():  # type: ignore[attr-defined]
        for each, one in getattr(command, "commands", {"": command}).items():
            if any(parameter.name in ("address", "addresses") for parameter in one.params):
                calling.add(f"{group} {each}".strip())

    assert len(calling) >= 10
    assert calling <= told
