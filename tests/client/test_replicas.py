"""tandem.client with several orchestrators behind one name."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack

from tandem.client import AsyncClient
from tests.chassis.calls.test_channels import replica


async def test_orchestrators_of_one_name_are_called_in_turn() -> None:
    """A name that resolves to two addresses, as a headless service's does."""
    called: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(replica(name, called)) for name in "ab"]
        client = await stack.enter_async_context(AsyncClient(f"ipv4:{','.join(addresses)}"))
        while len(called) < 2:  # both are connected
            await client.search("a cat", index_id="0")
        called.clear()
        for _ in range(20):
            await client.search("a cat", index_id="0")

    assert called == {"a": 10, "b": 10}
