"""Opens a folder's services for the engines: what both keep, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import structlog

from embedded.local_server import LocalServer
from embedded.loop_thread import LoopThread
from embedded.model_folder import ModelFolder
from embedded.services import InProcessServices
from tandem.chassis.allocator import keep_activations
from tandem.local.data_folder import DataFolder
from tandem.local.start_checks import shard_count


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Says how an engine opens its folder."""

    folder: Path
    model: Path | None = None
    shards: int | None = None
    caches: bool = True


class OpenFolder:
    """Holds a folder's services, and the event loop in whose thread they run."""

    def __init__(self, thread: LoopThread, services: InProcessServices, opened: ExitStack) -> None:
        self.thread = thread
        self.server = LocalServer()
        services.servicers.register(self.server)
        self.has_pairs = services.has_pairs
        self._runner = services.runner
        self._opened = opened
        self._is_closed = False

    @classmethod
    def open(cls, options: FolderOptions) -> Self:
        """Opens the folder, or makes it; the model is loaded in the background.

        Raises StartRefused if another process has the folder, StoreRefused for a store that may not
        be opened, and ValueError for files that are no model.
        """
        _log_warnings_alone()
        keep_activations()
        path = options.folder
        with ExitStack() as opened:
            data = opened.enter_context(DataFolder(path, holder="Engine", remedy="another folder"))
            services = InProcessServices(
                partial(ModelFolder.find, path, options.model),
                _shard_folders(data, options.shards),
                caches=options.caches,
            )
            opened.callback(services.close)
            thread = LoopThread("tandem-engine")
            opened.callback(thread.close)
            thread.run(services.start())
            return cls(thread, services, opened.pop_all())

    def wait_until_ready(self) -> None:
        """Returns once the model is loaded; raises ValueError if the engine is closed."""
        self._check_open()
        self._runner.wait_until_loaded()

    async def until_ready(self) -> None:
        """Does the same in an event loop, any but that of the services."""
        self._check_open()
        if not self._runner.is_loaded:
            await asyncio.to_thread(self._runner.wait_until_loaded)

    def close(self) -> None:
        """Ends what still runs, commits, and gives the folder back; a second call does nothing."""
        self._is_closed = True
        self._opened.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("this Engine is closed: open its folder again")


def _shard_folders(data: DataFolder, shards: int | None) -> list[Path]:
    count = shard_count(
        shards or (None if data.shard_count() else 1), data.shard_count(), data.path
    )
    return [data.path / f"shard-{number}" for number in range(count)]


def _log_warnings_alone() -> None:
    """Sends warnings to stderr, unless the program has its own way with the rooms' events."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
