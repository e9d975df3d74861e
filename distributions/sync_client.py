"""Writes the source of Client, made from AsyncClient's as unasync does it, to the path it is given.

`make sync-client` runs it, and `make check` compares. Docstrings differ where a loop does.
"""

import re
import sys
from pathlib import Path

_SOURCE = Path(__file__).parents[1] / "tandem/client/async_client.py"
_CHANGES = {
    r"for asyncio programs, with the same calls as Client\.": (
        "for programs without an event loop.\n\n"
        "Generated from async_client.py by `make sync-client`: DO NOT EDIT.\n"
    ),
    r"from an event loop\. Close it, or use it in an async with.*?over one connection\.\n    ": (
        "over one connection. Close it, or use it in a with statement."
    ),
    r"\n        Each event loop that calls has a connection of its own\.\n": "",
    r"Yields the answer in bi-encoder order.*?cancels the rerank\.": (
        "Yields two answers: bi-encoder order at once, then the answer of `search`.\n\n"
        "        Takes what `search` takes. Leaving the iteration early cancels the rerank."
    ),
    r"\n        Iterate over it with `async for`.*?blocks\.\n": "",
    # grpc.aio alone loses a stream's status, and cancels its own calls.
    r"from tandem\.client\.server_status import .*?\n": "",
    r" {12}status = ServerStatus\(call\)\n": "",
    r" {16}failure = await status\.hidden_by\(error\)\n": "",
    r"error_of\(failure,": "error_of(error,",
    r" {12}except asyncio\.CancelledError.*?(?= {12}finally)": "",
    # A coroutine cannot yield from another iterator.
    r"for outcome in outcomes:\n {24}yield outcome\n": "yield from outcomes\n",
    r"\b(async|await) ": "",
    r"Awaitable\[(\w+)\]": r"\1",
    r"AsyncIterator, Awaitable, Callable, Iterable,": "Callable, Iterable, Iterator,",
    r"\bAsync(?=Iterator|Client|Connection)": "",
    r"__a(?=enter__|exit__)": "__",
    r"grpc\.aio\.AioRpcError": "grpc.RpcError",
    r"\basyncio\b": "time",
}


def sync_source(source: str) -> str:
    """Returns the source of Client; raises ValueError for a change that finds nothing."""
    for pattern, replacement in _CHANGES.items():
        source, count = re.subn(pattern, replacement, source, flags=re.DOTALL)
        if not count:
            raise ValueError(f"AsyncClient's source has no {pattern!r}; mend sync_client.py")
    return source


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(sync_source(_SOURCE.read_text()))
