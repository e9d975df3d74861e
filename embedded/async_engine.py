"""Searches and ingests in one process, from programs with an event loop of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import grpc

from embedded.awaiting_channel import AwaitingChannel
from embedded.open_folder import FolderOptions, OpenFolder
from embedded.own_names import with_own_names
from tandem.client import Access, AsyncClient
from tandem.client.arguments import checked_timeout_seconds

# Above a client's default: the first call also waits for the model to load.
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _AwaitedInProcess(Access):
    """Opens the engine's channel in place of a connection."""

    channel: AwaitingChannel | None = None

    def check_address(self, address: str) -> None:
        """Accepts any: it is the engine's folder."""

    def open_aio_channel(self, address: str) -> grpc.aio.Channel:
        """Returns the channel."""
        return self.channel


@with_own_names
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
        options = FolderOptions.checked(folder, model, shards, caches=caches)
        checked_timeout_seconds(timeout_seconds)  # before anything is opened
        self._open_folder = OpenFolder.open(options)
        self.folder = str(options.folder)
        channel = AwaitingChannel(self._open_folder)
        super().__init__(self.folder, timeout_seconds, _AwaitedInProcess(channel=channel))
        self._open_folder.begin_loading()

    def __repr__(self) -> str:
        return f"<AsyncEngine over {self.folder}>"

    def __reduce__(self) -> NoReturn:
        self._open_folder.refuse_copy()

    async def close(self) -> None:
        """Ends what still runs, commits, and gives the folder back; a second call does nothing."""
        await asyncio.to_thread(self._open_folder.close)
