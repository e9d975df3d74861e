"""Keeps connections to Postgres, bounds work on them by a deadline, and names Postgres' errors."""

import asyncio
import hashlib
import re
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus

from tandem.chassis.settings import SettingsError
from tandem.contract.deadline import Deadline
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.remote.engine_metrics import engine_call
from tandem.remote.index_engine import ESCAPED_PASSWORD, EngineSettings

_T = TypeVar("_T")
Row: TypeAlias = tuple[Any, ...]
Names: TypeAlias = Callable[[str], Mapping[str, str]]
"""By an index's id, what statements call tables, and how its embeddings are compared."""

# Where the url names no others. A host that is gone without a word is given up after half a minute.
# Networks of clouds forget a connection that is quiet for some minutes, also without a word.
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": "3",
    "tcp_user_timeout": "30000",
    "keepalives_idle": "60",
    "application_name": "tandem",
}
# An index is scanned until enough rows match, at most 100,000; then all are compared. Without
# synchronous commits, writes that were acknowledged could be lost.
_SETTINGS = """
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', false),
    set_config('hnsw.ef_search', '100', false),
    set_config('hnsw.max_scan_tuples', '100000', false),
    set_config('hnsw.scan_mem_multiplier', '4', false),
    set_config('synchronous_commit',
        replace(current_setting('synchronous_commit'), 'off', 'on'), false)
"""
_CHECK_SECONDS = 3.0
_VECTOR_HEADER = struct.Struct(">HH")
_TABLES = ("shard", "indexes", "changes", "requests", "notes")


class Session:
    """Runs statements on one connection, with the names of the shard's tables filled in."""

    def __init__(self, connection: psycopg.AsyncConnection[Row], names: Names) -> None:
        self.connection = connection
        self._names = names

    async def rows(
        self,
        statement: str,
        values: Sequence[object] | Mapping[str, object] = (),
        index_id: str = "",
        *,
        is_prepared: bool = False,
        **parts: object,
    ) -> list[Row]:
        """Returns the rows of a statement, after the parts are filled in, too.

        One that is not prepared is planned for its values; without values it may be several.
        """
        filled = statement.format(**self._names(index_id), **parts).encode()
        found = await self.connection.execute(
            filled, values or None, binary=bool(values), prepare=is_prepared
        )
        return await found.fetchall() if found.description else []


class Connections:
    """Lends connections, at most so many at once, and makes them as they are needed.

    psycopg's own pool connects in the background and makes a caller wait out its time while a
    server is down; here the caller gets Postgres' reason at once.
    """

    def __init__(self, settings: EngineSettings, url: str, names: Names | None = None) -> None:
        """Takes libpq's url or connection string, and other names than those of own tables.

        Raises SettingsError for one that libpq cannot read, and for a namespace that is no name.
        """
        try:
            known = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # whose text has a part of it, maybe of the password
            known = {"host": "@"}
        if any("@" in str(known.get(name)) for name in ("host", "dbname")):
            raise SettingsError(f"libpq cannot read the engine's URL: {ESCAPED_PASSWORD}")
        # Postgres cuts names off at 63 bytes.
        if not re.fullmatch("[A-Za-z0-9_-]{1,50}", schema := settings.engine_namespace):
            raise SettingsError("the engine's namespace has 1 to 50 of a-z, A-Z, 0-9, '_' and '-'")
        self._names = names or partial(_own_names, schema)
        self._url = psycopg.conninfo.make_conninfo(**{**_DEFAULTS, **known})
        self._places = asyncio.Semaphore(settings.engine_connection_count)
        self._idle: list[Session] = []
        self._running: set[asyncio.Task[Any]] = set()

    async def run(
        self,
        work: Callable[[Session], Awaitable[_T]],
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

    async def _run(self, work: Callable[[Session], Awaitable[_T]], may_repeat: bool) -> _T:
        async with engine_call("connection"):
            await self._places.acquire()
        try:
            if self._idle:
                session = self._idle.pop()
                try:
                    return await self._done(work, session)
                except psycopg.OperationalError:
                    if not (may_repeat and session.connection.broken):
                        raise
            return await self._done(work, await self._connected())
        finally:
            self._places.release()

    async def _done(self, work: Callable[[Session], Awaitable[_T]], session: Session) -> _T:
        connection = session.connection
        try:
            return await work(session)
        finally:
            if connection.broken:  # The others are lost with it.
                await self._close_idle()
            elif connection.info.transaction_status is TransactionStatus.IDLE:
                self._idle.append(session)
            else:
                await connection.close()

    async def _connected(self) -> Session:
        connection: psycopg.AsyncConnection[Row] = await psycopg.AsyncConnection.connect(
            self._url, autocommit=True
        )
        connection.adapters.register_dumper(np.ndarray, _VectorDumper)
        await connection.execute(_SETTINGS)
        return Session(connection, self._names)

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for session in idle:
            await session.connection.close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Retrieved: the caller may be gone.


class Servers:
    """Holds the connections to the primary and, where the settings name one, to a standby."""

    def __init__(self, settings: EngineSettings, names: Names | None = None) -> None:
        """Raises SettingsError as Connections does."""
        self.primary = Connections(settings, settings.engine_url, names)
        self._all = [self.primary]
        if settings.engine_read_url:
            self._all.append(Connections(settings, settings.engine_read_url, names))

    async def read(
        self, work: Callable[[Session], Awaitable[_T]], deadline: Deadline, what: str
    ) -> _T:
        """Returns what the work reads: on the standby, unless it does not have the index yet."""
        for standby in self._all[1:]:
            with suppress(IndexNotFound):
                return await standby.run(work, deadline, what)
        return await self.primary.run(work, deadline, what)

    async def check(self, work: Callable[[Session], Awaitable[object]]) -> None:
        """Has the work check each; raises ServiceUnavailable."""
        for each in self._all:
            await each.run(work, Deadline.after(_CHECK_SECONDS), "check")

    async def close(self) -> None:
        """Closes all connections; no call may be in flight."""
        for each in self._all:
            await each.close()


def _own_names(schema: str, index_id: str) -> Mapping[str, str]:
    # Ids are longer than names may be.
    items = f"items_{hashlib.blake2b(index_id.encode(), digest_size=12).hexdigest()}"
    names = {name: f'"{schema}".{name}' for name in _TABLES}
    names |= {"schema": f'"{schema}"', "made": f'"{schema}_made"', "items": f'"{schema}".{items}'}
    return names | {"operator": "<#>", "at_same": "0", "unit": ""}


def named(error: psycopg.Error) -> TandemError:
    """Returns the error of the one table that a caller gets instead."""
    why = str(error).strip().partition("\n")[0]
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFull(why=f"Postgres: {why}", advice="give Postgres more room")
    if isinstance(error, psycopg.errors.QueryCanceled):
        return DeadlineExceeded(what=f"a statement of Postgres ({why})")
    # By the SQLSTATE operators tell a server's fault from missing rights, tables, or our own bug.
    state = f" ({error.sqlstate})" if error.sqlstate else ""  # none while nothing connects
    return ServiceUnavailable(service="index", why=f"Postgres{state}: {why}")


def vector_of(value: bytes) -> NDArray[np.float32]:
    """Returns the float32 [d] of what vector_send() returns."""
    return np.frombuffer(value, ">f4", offset=_VECTOR_HEADER.size).astype(np.float32)


class _VectorDumper(Dumper):
    """Sends float32 [d] as pgvector reads it; a cast in the statement names the type."""

    format = Format.BINARY

    def dump(self, obj: NDArray[np.float32]) -> bytes:
        return _VECTOR_HEADER.pack(len(obj), 0) + obj.astype(">f4").tobytes()
