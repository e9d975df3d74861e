"""Keeps items' records, and what the services note of writes, in an object store.

Texts of Milvus end at 65,535 bytes, which a picture exceeds, and a collection is in memory whole.
Milvus has no transaction over rows and no read that is both quick and sure; an object store reads
its own writes.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tandem.chassis.settings import SettingsError
from tandem.errors import ServiceUnavailable
from tandem.installation import PackageMissing
from tandem.platform.files.object_store import object_folder
from tandem.remote.engine_metrics import engine_call

_T = TypeVar("_T")

# A write of 64 items has as many objects, whose store answers in parallel.
_THREAD_COUNT = 32
_RETRY_SECONDS = 10.0


class ItemObjects:
    """Writes, reads and deletes objects by key; all raise ServiceUnavailable."""

    def __init__(self, url: str, *, is_new: bool = True) -> None:
        """Takes a URL such as s3://bucket/folder or file:///folder; raises SettingsError."""
        try:
            self._folder = object_folder(url, is_new=is_new, retry_seconds=_RETRY_SECONDS)
        except (OSError, PackageMissing) as error:
            raise SettingsError(f"the object store cannot be used: {error}") from error
        self._threads = ThreadPoolExecutor(_THREAD_COUNT, "objects")

    async def put(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Stores objects by key, unless there are such."""
        await asyncio.gather(*(self._do(self._folder.create, *each) for each in objects))

    async def get(self, keys: Iterable[str], max_bytes: float = math.inf) -> list[bytes | None]:
        """Returns the objects, None for those that are not there or larger."""
        return await asyncio.gather(*(self._do(self._folder.read, key, max_bytes) for key in keys))

    async def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects, ignoring those that are not there."""
        await asyncio.gather(*(self._do(self._folder.remove, [key]) for key in keys))

    async def swap(self, key: str, replaced: bytes | None, data: bytes) -> bool:
        """Stores an object in place of exactly that one, or of none; returns whether it did."""
        return bool(await self._do(self._folder.swap, key, replaced, data))

    async def names(self, folder: str) -> list[str]:
        """Returns the names of all objects below the folder."""
        return list(await self._do(self._folder.inner(folder).sizes) or ())

    async def delete_folder(self, folder: str) -> None:
        """Deletes all objects below the folder."""
        inner = self._folder.inner(folder)
        await self._do(lambda: inner.remove(list(inner.sizes())))

    async def _do(self, act: Callable[..., _T], *arguments: object) -> _T | None:
        async with engine_call("object"):
            try:
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._threads, act, *arguments)
            except OSError as error:
                why = f"the object store failed: {error}"
                raise ServiceUnavailable(service="index", why=why) from error
        return None
