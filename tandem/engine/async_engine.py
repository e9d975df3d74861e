"""Searches and ingests in one process, from programs with an event loop of their own."""

import asyncio
from pathlib import Path
from typing import NoReturn

from tandem.client import AsyncClient
from tandem.client.arguments import checked_timeout_seconds
from tandem.engine.async_local import AsyncLocal
from tandem.engine.open_folder import OpenFolder

# Above a client's default: the first call also waits for the model to load.
_TIMEOUT_SECONDS = 60.0


class AsyncEngine(AsyncClient):
    """A whole Tandem over one folder, with the calls of `AsyncClient`. Use it in an async with.

        engine = await asyncio.to_thread(AsyncEngine, "my-pictures")
        async with engine:
            found = await engine.search("a cat", index_id="pets")

    It keeps the same folder as `Engine` and gives the same answers. Its services run in a thread of
    their own, so the caller's event loop only waits.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        model: str | Path | None = None,
        shards: int | None = None,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        caches: bool = True,
    ) -> None:
        """Opens the folder, or makes it, which blocks for as long: in an event loop, use a thread.

        The arguments and errors are those of `Engine`.
        """
        checked_timeout_seconds(timeout_seconds)  # before anything is opened
        self._open_folder = OpenFolder.open(folder, model, shards, caches=caches)
        self.folder = str(self._open_folder.path)
        self._transport = AsyncLocal(self._open_folder, timeout_seconds)
        self._open_folder.begin_loading()

    def __repr__(self) -> str:
        return f"<AsyncEngine over {self.folder}>"

    def __reduce__(self) -> NoReturn:
        self._open_folder.refuse_copy()

    async def close(self) -> None:
        """Ends what still runs, commits, and gives the folder back; a second call does nothing."""
        await asyncio.to_thread(self._open_folder.close)
