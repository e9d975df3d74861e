"""Calls Milvus with a deadline, and names its errors as the contract does."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import grpc
from pymilvus import AsyncMilvusClient, MilvusException
from pymilvus.client.utils import check_status
from pymilvus.grpc_gen import milvus_pb2

from tandem.contract.deadline import Deadline
from tandem.errors import IndexNotFound, Overloaded, ServiceUnavailable, StoreFull, TandemError
from tandem.remote.engine_metrics import engine_call

Consistency = Mapping[str, object]
"""The arguments of pymilvus that say which writes a read sees."""

LATELY: Consistency = {"consistency_level": "Bounded"}
"""Those of a few seconds ago, and usually those of a quarter of a second ago."""
ALL_WRITES: Consistency = {"consistency_level": "Strong"}
"""All that were acknowledged to anyone: waits for about 200 ms."""

_CHECK_SECONDS = 5.0
_RECONNECT = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 1_000}


def as_of(sequence: int) -> Consistency:
    """Returns what sees the writes up to the sequence; `LATELY` for none."""
    if not sequence:
        return LATELY
    return {"consistency_level": "Customized", "guarantee_timestamp": sequence}


class MilvusConnection:
    """One client of one Milvus database, which connects when it is first called.

    Its calls raise DeadlineExceeded, IndexNotFound for a collection that is not there, Overloaded,
    StoreFull and ServiceUnavailable.
    """

    def __init__(self, url: str, authority_path: str = "") -> None:
        """Takes http://USER:PASSWORD@HOST:PORT/DATABASE, or https for TLS."""
        # It logs each error with a traceback.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        parts = urlsplit(url)
        self._options: dict[str, Any] = {
            "uri": f"{parts.scheme}://{parts.hostname}:{parts.port or 19530}",
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db_name": parts.path.strip("/"),
            "grpc_options": _RECONNECT,
            "dedicated": True,
        }
        if parts.scheme == "https":
            self._options |= {"secure": True, "server_pem_path": authority_path}
        self._client: AsyncMilvusClient | None = None
        self._written: dict[str, int] = {}

    async def call(self, method: str, *args: object, deadline: Deadline, **kwargs: object) -> Any:  # noqa: ANN401 (of pymilvus, which has no types)
        """Returns the answer of a method of pymilvus' client."""
        what = f"{method}_as_of" if "guarantee_timestamp" in kwargs else method
        async with self._calling(what, str(args[0]) if args else "", deadline) as client:
            return await getattr(client, method)(*args, retry_times=0, **kwargs)

    async def check(self) -> None:
        """Raises ServiceUnavailable or DeadlineExceeded while Milvus does not answer."""
        await self.call("get_server_version", deadline=Deadline.after(_CHECK_SECONDS))

    async def delete(self, collection_name: str, where: str, deadline: Deadline) -> None:
        """Deletes the rows that match the expression."""
        async with self._calling("delete", collection_name, deadline) as client:
            # The client's own method drops the outcome.
            handler = await client._get_connection()  # noqa: SLF001
            answer = await handler.delete(collection_name, where, retry_times=0)
            check_status(answer._raw.status)  # noqa: SLF001

    async def timestamp(self, deadline: Deadline) -> int:
        """Returns Milvus' time: later than all before it, and different at each call.

        The client has no method for it.
        """
        async with self._calling("timestamp", "", deadline) as client:
            stub = (await client._get_connection())._async_stub  # noqa: SLF001
            answer = await stub.AllocTimestamp(milvus_pb2.AllocTimestampRequest())
            check_status(answer.status)
        return int(answer.timestamp)

    async def note_write(self, collection_name: str, deadline: Deadline) -> int:
        """Returns the sequence of a write that is done: Milvus 2.3 does not say when it deleted."""
        sequence = await self.timestamp(deadline)
        # Of two writes at once the later timestamp may arrive first.
        self._written[collection_name] = max(sequence, self._written.get(collection_name, 0))
        return sequence

    def as_written(self, collection_name: str, sequence: int = 0) -> Consistency:
        """Returns what sees this process's writes, and those up to the sequence."""
        return as_of(max(self._written.get(collection_name, 0), sequence))

    async def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            await self._client.close()

    @asynccontextmanager
    async def _calling(
        self, what: str, collection_name: str, deadline: Deadline
    ) -> AsyncIterator[AsyncMilvusClient]:
        if self._client is None:
            self._client = AsyncMilvusClient(**self._options)
        async with engine_call(what), deadline.kept(f"Milvus' {what}"):
            try:
                yield self._client
            except MilvusException as error:
                raise _named(error, collection_name) from error
            except grpc.RpcError as error:
                raise _unavailable(f"{error.code().name}: {error.details()}") from error


def _named(error: MilvusException, collection_name: str) -> TandemError:
    # The codes are Milvus' own (pkg/util/merr); the client names three of them.
    match error.code:
        case 100:
            return IndexNotFound(index_id=collection_name)
        case 8:
            return Overloaded(what=f"Milvus limits the rate: {error.message}")
        case 9:
            return StoreFull(why=f"Milvus refuses writes: {error.message}")
        case _:  # among them 101, "collection not loaded", right after a restart
            return _unavailable(str(error.message))


def _unavailable(why: str) -> ServiceUnavailable:
    return ServiceUnavailable(service="index", why=f"Milvus: {why.strip()[:300]}")
