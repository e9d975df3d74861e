"""Writes the sources of Client, made from AsyncClient's as unasync does it, to a folder.

`make sync-client` runs it, and `make check` compares. Docstrings differ where a loop does.
"""

import re
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_EVERYWHERE = {
    r"\b(async|await) ": "",
    r"Awaitable\[(\w+)\]": r"\1",
    r"AsyncGenerator\[(.*), None\]": r"Generator[\1, None, None]",
    r"Async(?=Iterator|Generator)": "",
    r"Awaitable, Callable": "Callable",
    r"\basync_(?=transport|remote|client)": "",
    r"\bAsync(?=Transport|Remote|Client|Connection|Local)": "",
    r"__a(?=enter__|exit__)": "__",
    r"grpc\.aio\.AioRpcError": "grpc.RpcError",
    r"\basyncio\b": "time",
    r"\baclose\b": "close",
}
_SOURCES = {
    "tandem/client/client.py": {
        r"for asyncio programs, with the same calls as Client\.": (
            "for programs without an event loop.\n\n"
            "Generated from async_client.py by `make sync-client`: DO NOT EDIT.\n"
        ),
        r"from an event loop\. Close it, or use it in an async.*?over one connection\.\n    ": (
            "over one connection. Close it, or use it in a with statement."
        ),
        r"\n        Each event loop that calls has a connection of its own\.\n": "",
        r"Yields the answer in bi-encoder order.*?cancels the rerank\.": (
            "Yields two answers: bi-encoder order at once, then the answer of `search`.\n\n"
            "        Takes what `search` takes. Leaving the iteration early cancels the rerank."
        ),
        r"\n        Iterate over it with `async for`.*?blocks\.\n": "",
        # A coroutine cannot yield from another iterator.
        r"for answer in answers:\n {16}yield answer\n": "yield from answers\n",
        r"for item in items:\n {16}yield item\n": "yield from items\n",
        r"for outcome in outcomes:\n {24}yield outcome\n": "yield from outcomes\n",
    },
    "tandem/client/calls/transport.py": {
        r"in this process\.": (
            "in this process.\n\n"
            "Generated from async_transport.py by `make sync-client`: DO NOT EDIT.\n"
        ),
    },
    "tandem/client/calls/remote.py": {
        r"over a connection, and repeats those that may be\.": (
            "over a connection, and repeats those that may be.\n\n"
            "Generated from async_remote.py by `make sync-client`: DO NOT EDIT.\n"
        ),
        r"over one connection for each event loop that calls\.": "over one connection.",
        r"in the event loop, or in a thread": "in a thread",
        # grpc.aio alone loses a stream's status, and cancels its own calls.
        r"from tandem\.client\.calls\.server_status import .*?\n": "",
        r" {8}status = ServerStatus\(call\)\n": "",
        r" {12}failure = await status\.hidden_by\(error\)\n": "",
        r"error_of\(failure,": "error_of(error,",
        r" {8}except asyncio\.CancelledError.*?(?= {8}finally)": "",
    },
    "tandem/engine/local.py": {
        r"to the orchestrator of this process\.": (
            "to the orchestrator of this process.\n\n"
            "Generated from async_local.py by `make sync-client`: DO NOT EDIT.\n"
        ),
        r"await self\._folder\.thread\.awaited": "self._folder.thread.run",
        r"for answer in answers:\n {16}yield answer\n": "yield from answers\n",
        r"await self\._folder\.until_ready": "self._folder.wait_until_ready",
    },
}


def sync_source(path: str) -> str:
    """Returns the source of a file of Client; raises ValueError for a change that finds nothing."""
    place = _ROOT / path
    source = place.with_name(f"async_{place.name}").read_text()
    for pattern, replacement in _SOURCES[path].items():
        source, count = re.subn(pattern, replacement, source, flags=re.DOTALL)
        if not count:
            raise ValueError(f"the source of {path} has no {pattern!r}; mend sync_client.py")
    for pattern, replacement in _EVERYWHERE.items():
        source = re.sub(pattern, replacement, source)
    return source


if __name__ == "__main__":
    for each in _SOURCES:
        made = Path(sys.argv[1]) / each
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(sync_source(each))
