"""Calls each method of both clients with nothing but tandem-search-client installed.

    python -W error sdk_calls.py 127.0.0.1:PORT

Prints the ids that were found. It is run by other versions of Python, which have no test runner.
"""

import asyncio
import importlib
import pkgutil
import sys

import tandem.client
import tandem.client.testing
import tandem.contract
import tandem.v1
from tandem.client import AsyncClient, Client
from tandem.errors import TandemError


def import_all() -> None:
    """Imports every module of the distribution."""
    for package in (tandem.client, tandem.client.testing, tandem.contract, tandem.v1):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)


def calls(address: str) -> None:
    """Calls the synchronous client."""
    with Client(address) as client:
        outcomes = list(client.ingest([("a", "text")], index_id="scenes"))
        assert [outcome.item_id for outcome in outcomes] == ["a"]
        print([item.item_id for item in client.search("a", index_id="scenes").items])
        assert client.describe_model().fingerprint
        assert client.describe_index(index_id="scenes").shards
        assert client.list_indexes().indexes
        try:
            client.search("a", index_id="")
        except TandemError as error:
            print(error.reason)


async def awaited_calls(address: str) -> None:
    """Calls the asynchronous one."""
    async with AsyncClient(address) as client:
        outcomes = [each async for each in client.ingest([("a", "text")], index_id="scenes")]
        assert [outcome.item_id for outcome in outcomes] == ["a"]
        print([item.item_id for item in (await client.search("a", index_id="scenes")).items])


if __name__ == "__main__":
    import_all()
    calls(sys.argv[1])
    asyncio.run(awaited_calls(sys.argv[1]))
