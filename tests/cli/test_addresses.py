"""Commands and addresses: refused if malformed, and distinguished if nothing answers."""

import asyncio
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from tandem.cli.app import app
from tandem.cli.corpora.corpora import open_corpus
from tandem.cli.options import nobody_there
from tandem.corpus.left_out import LeftOut
from tandem.stack.free_ports import free_ports
from tests.support.client.search_server import search_server

COMMANDS: tuple[Sequence[str], ...] = (
    ("search", "two dogs"),
    ("ingest", "scenes"),
    ("evaluate",),
    ("models", "describe"),
    ("index", "describe"),
    ("index", "rebuild", "scenes"),
    ("index", "advise", "scenes"),
)


def test_every_command_says_what_to_write() -> None:
    for command in COMMANDS:
        is_shards = command[0] == "index"
        option = "--shard-address" if is_shards else "--address"
        result = CliRunner().invoke(app, [*command, option, "localhost"])

        assert result.exit_code == 2, command
        assert "localhost has no port; write localhost:7400" in result.output


def test_an_unanswered_address_names_the_command_that_starts_the_service() -> None:
    [port] = free_ports(1)

    assert "start it with `tandem up`" in str(nobody_there(f"127.0.0.1:{port}"))
    assert "no machine is found by that name" in str(nobody_there("no.invalid:7400"))
    assert nobody_there("unix:/run/none") is None
    assert nobody_there("encoder") is None


async def test_another_services_address_is_distinguished_from_a_shards() -> None:
    """The orchestrator's is the one at hand, and no fault inside Tandem."""
    async with search_server() as (address, _):
        command = ["index", "describe", "--shard-address", address]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)

    assert f"no index_svc answers at {address}" in str(result.exception)


@pytest.mark.parametrize("kind", ["folder"])
def test_a_missing_home_folder_is_reported(kind: str) -> None:
    with pytest.raises(ValueError, match=r"no home folder for ~nobody-here; write the whole"):
        open_corpus(f"{kind}:~nobody-here/pictures", "test", 1, None, LeftOut())
