"""Keeps connections to Postgres, bounds work on them by a deadline, and names Postgres' errors."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus

from tandem.contract.deadline import Deadline
from tandem.errors import DeadlineExceeded, ServiceUnavailable, StoreFull, TandemError
from tandem.remote.engine_metrics import engine_call

_T = TypeVar("_T")
Connection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

# Where the url names no others. A host that is gone without a word is given up after half a minute.
# Networks of clouds forget a connection that is quiet for some minutes, also without a word.
_DEFAULTS = {
    "connect_timeout": "3",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "60",
    "application_name": "tandem",
}
_VECTOR_HEADER = struct.Struct(">HH")
# An index is scanned until enough rows match, at most this number; then all are compared.
_SETTINGS = {
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.ef_search": "100",
    "hnsw.max_scan_tuples": "100000",
    "hnsw.scan_mem_multiplier": "4",
}
# Without it, writes that were acknowledged could be lost.
_DURABLE = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""


class Connections:
    """Lends connections, at most so many at once, and makes them as they are needed.

    psycopg's own pool connects in the background and makes a caller wait out its time while a
    server is down; here the caller gets Postgres' reason at once.
    """

    def __init__(self, url: str, max_count: int) -> None:
        """Takes libpq's url or connection string."""
        self._url = url
        self._places = asyncio.Semaphore(max_count)
        self._idle: list[Connection] = []
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[Connection], Awaitable[_T]],
        deadline: Deadline,
        what: str,
        *,
        may_repeat: bool = True,
    ) -> _T:
        """Returns what the work does with a connection.

        Work that may be repeated is so once where the connection turns out to be lost, as all are
        after a restart of the server. Raises DeadlineExceeded, naming `what`, ServiceUnavailable
        and StoreFull.
        """
        # In a task of its own: the end of cancelled work waits for the server, which may hang.
        task = asyncio.create_task(self._run(work, may_repeat))
        self._running.add(task)
        task.add_done_callback(self._ended)
        async with engine_call(what):
            try:
                await asyncio.wait([task], timeout=max(0.0, deadline.left()))
                if not task.done():
                    raise DeadlineExceeded(what=f"Postgres' {what}")
                return task.result()
            except psycopg.Error as error:
                raise named(error) from error
            finally:
                task.cancel()

    async def close(self) -> None:
        """Closes all connections; no call may be in flight."""
        for task in list(self._running):
            task.cancel()
        await self._close_idle()

    async def _run(self, work: Callable[[Connection], Awaitable[_T]], may_repeat: bool) -> _T:
        async with engine_call("connection"):
            await self._places.acquire()
        try:
            if self._idle:
                connection = self._idle.pop()
                try:
                    return await self._done(work, connection)
                except psycopg.OperationalError:
                    if not (may_repeat and connection.broken):
                        raise
            return await self._done(work, await self._connected())
        finally:
            self._places.release()

    async def _done(
        self, work: Callable[[Connection], Awaitable[_T]], connection: Connection
    ) -> _T:
        try:
            return await work(connection)
        finally:
            if connection.broken:  # The others are lost with it.
                await self._close_idle()
            elif connection.info.transaction_status is TransactionStatus.IDLE:
                self._idle.append(connection)
            else:
                await connection.close()

    async def _connected(self) -> Connection:
        known = psycopg.conninfo.conninfo_to_dict(self._url)
        kwargs: dict[str, Any] = {key: each for key, each in _DEFAULTS.items() if key not in known}
        # Unprepared statements are planned for their values: how many rows a filter leaves decides.
        connection: Connection = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, prepare_threshold=None, **kwargs
        )
        connection.adapters.register_dumper(np.ndarray, _VectorDumper)
        for name, value in _SETTINGS.items():
            await connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        await connection.execute(_DURABLE)
        return connection

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved: the caller may be gone.


def named(error: psycopg.Error) -> TandemError:
    """Returns the error of the one table that a caller gets instead."""
    why = str(error).strip().partition("\n")[0]
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFull(why=f"Postgres: {why}", advice="give Postgres more room")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return DeadlineExceeded(what=f"a statement of Postgres ({why})")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ServiceUnavailable(service="index", why=f"Postgres: {why}")
    # Of the schema, of rights, or a fault of ours; the SQLSTATE tells which.
    return ServiceUnavailable(service="index", why=f"Postgres ({error.sqlstate}): {why}")


def vector_of(value: bytes) -> NDArray[np.float32]:
    """Returns the float32 [d] of what vector_send() returns."""
    return np.frombuffer(value, ">f4", offset=_VECTOR_HEADER.size).astype(np.float32)


class _VectorDumper(Dumper):
    """Sends float32 [d] as pgvector reads it; a cast in the statement names the type."""

    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> bytes:
        return _VECTOR_HEADER.pack(len(obj), 0) + obj.astype(">f4").tobytes()
