"""Opens a folder's stages for the engines: what both keep, and how it ends."""

import asyncio
import logging
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn, Self

import structlog

from tandem.chassis.process.memory import keep_activations
from tandem.engine.local_stages import LocalStages
from tandem.engine.loop_thread import EngineClosed, LoopThread
from tandem.engine.model_folder import ModelFolder
from tandem.stack.data_folder import DataFolder
from tandem.stack.start_refused import StartRefused

# As `tandem up`, which opens the same folders.
_MOST_SHARDS = 8


class OpenFolder:
    """Holds a folder's stages, and the event loop in whose thread they run."""

    def __init__(
        self, path: Path, thread: LoopThread, stages: LocalStages, opened: ExitStack
    ) -> None:
        self.path = path
        self.thread = thread
        self.orchestrator = stages.orchestrator
        self.has_pairs = stages.has_pairs
        self._runner = stages.runner
        self._opened = opened
        self._process_id = os.getpid()
        self._is_closed = False

    def refuse_copy(self) -> NoReturn:
        """Raises TypeError, for an engine that is pickled or copied."""
        raise TypeError(
            "an engine can be neither pickled nor copied, since only one may have its folder: "
            "share it between threads, or serve other processes by tandem up --one-process"
        )

    @classmethod
    def open(
        cls, folder: str | Path, model: str | Path | None, shards: int | None, *, caches: bool
    ) -> Self:
        """Opens the folder, or makes it; the model is loaded once `begin_loading` is called.

        Raises TypeError or ValueError for an argument, StartRefused if another process has the
        folder, StoreRefused for a store that may not be opened, and ValueError for files that are
        not a model.
        """
        if shards is not None:
            if not isinstance(shards, int) or isinstance(shards, bool):
                raise TypeError(f"shards is {shards!r}; give a number, or None")
            if not 1 <= shards <= _MOST_SHARDS:
                raise ValueError(f"shards is {shards}; give 1 to {_MOST_SHARDS}, or None")
        if not isinstance(caches, bool):
            raise TypeError(f"caches is {caches!r}; give True or False")
        path = _path("folder", folder).absolute()
        model = None if model is None else _path("model", model)
        _log_warnings_alone()
        keep_activations()
        with ExitStack() as opened:
            data = opened.enter_context(DataFolder(path, holder="Engine", remedy="another folder"))
            stages = LocalStages(
                partial(ModelFolder.find, path, model),
                _shard_folders(data, shards),
                caches=caches,
            )
            opened.callback(stages.close)
            thread = LoopThread("tandem-engine")
            opened.callback(thread.close)
            thread.run(stages.start())
            return cls(path, thread, stages, opened.pop_all())

    def begin_loading(self) -> None:
        """Begins to load the model in the background, which slows down everything else."""
        self._runner.begin_loading()

    def wait_until_ready(self) -> None:
        """Returns once the model is loaded; raises EngineClosed after `close`."""
        self._check_open()
        self._runner.wait_until_loaded()

    async def until_ready(self) -> None:
        """Does the same in an event loop, any but that of the stages."""
        self._check_open()
        if not self._runner.is_loaded:
            await asyncio.to_thread(self._runner.wait_until_loaded)

    def close(self) -> None:
        """Ends what still runs, commits, and gives the folder back; a second call does nothing."""
        self._is_closed = True
        if os.getpid() == self._process_id:  # a fork has none of the threads to wait for
            self._opened.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosed
        if os.getpid() != self._process_id:
            raise ValueError(
                f"this Engine is of process {self._process_id}, from which this one was forked: "
                "call it there, or serve several processes by tandem up --one-process"
            )


def _path(name: str, given: str | Path) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"{name} is of type {type(given).__name__}; give a str or a Path")
    if not os.fspath(given):
        # Path("") is the working folder, and an empty variable that is passed on means another one.
        raise ValueError(f"{name} is empty; give a path, such as '.' for the working folder")
    return Path(given)


def _shard_folders(data: DataFolder, shards: int | None) -> list[Path]:
    stored = data.shard_count()
    if shards is not None and stored is not None and shards != stored:
        raise StartRefused(
            f"{data.path} has {stored} shard{'s' if stored > 1 else ''}, not {shards}: leave out "
            "shards, or give another folder"
        )
    return [data.path / f"shard-{number}" for number in range(stored or shards or 1)]


def _log_warnings_alone() -> None:
    """Sends only warnings to stderr, unless the program configured the logging itself."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
