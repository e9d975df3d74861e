"""One search at a time by either door, for loads that count how each ends."""

import asyncio
import json
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import urlsplit

import grpc
from google.rpc import error_details_pb2, status_pb2

from tandem.chassis.calls.channels import open_channel
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub

# A connection carries a hundred calls at once, by gRPC's default at its server's end.
_CONNECTION_COUNT = 8
# A pool's limit, as clients have one; the gateway closes more than 256 of one host.
_MOST_CONNECTIONS = 200
_SEARCH_PATH = "/v1/search"
_HTTP_CODES = {
    200: "OK",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a search ended."""

    code: str
    """As gRPC names it."""
    has_delay: bool = False
    """Whether a refusal says when to come again."""
    is_reranked: bool = False
    """Whether the cross-encoder scored something."""


class Searches(Protocol):
    """A way to search."""

    async def search(self, text: str, deadline: float) -> Ended:
        """Makes one search, which may take `deadline` seconds."""

    async def close(self) -> None:
        """Closes the connections."""


class GrpcSearches:
    """Searches over gRPC, over several connections in turn."""

    def __init__(self, address: str, index_id: str) -> None:
        """Needs a running event loop."""
        self._index_id = index_id
        self._channels = [open_channel(address) for _ in range(_CONNECTION_COUNT)]
        self._stubs = [SearchServiceStub(channel) for channel in self._channels]
        self._count = 0

    async def ready(self) -> Self:
        """Returns once every connection is made."""
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        return self

    async def search(self, text: str, deadline: float) -> Ended:
        """Makes one search."""
        self._count += 1
        stub = self._stubs[self._count % len(self._stubs)]
        request = pb.SearchItemsRequest(index_id=self._index_id, query={"text": text})
        try:
            answer = await stub.SearchItems(request, timeout=deadline)
        except grpc.aio.AioRpcError as error:
            return Ended(error.code().name, _has_retry_info(error))
        return Ended("OK", is_reranked=any(each.HasField("match_logit") for each in answer.items))

    async def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels:
            await channel.close()


class HttpSearches:
    """Searches over HTTP, each on a connection of a pool; beyond its limit they wait for one."""

    def __init__(self, url: str, index_id: str) -> None:
        """Needs a running event loop."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "localhost", parts.port or 80
        self._index_id = index_id
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._places = asyncio.Semaphore(_MOST_CONNECTIONS)

    async def search(self, text: str, deadline: float) -> Ended:
        """Makes one search."""
        body = json.dumps({"query": text, "index_id": self._index_id}).encode()
        try:
            async with asyncio.timeout(deadline), self._places:
                head, answer = await self._exchange(body, deadline)
        except TimeoutError:
            return Ended("DEADLINE_EXCEEDED")
        except (OSError, asyncio.IncompleteReadError) as error:
            return Ended(type(error).__name__)
        status = int(head.split(b" ", 2)[1])
        code = _HTTP_CODES.get(status, f"HTTP {status}")
        return Ended(code, b"\r\nretry-after:" in head, b'"match_logit"' in answer)

    async def close(self) -> None:
        """Closes the connections."""
        for _, writer in self._idle:
            writer.close()

    async def _exchange(self, body: bytes, deadline: float) -> tuple[bytes, bytes]:
        reader, writer = self._idle.pop() if self._idle else await self._open()
        is_whole = False
        try:
            lines = [
                f"POST {_SEARCH_PATH} HTTP/1.1",
                f"Host: {self._host}",
                "Content-Type: application/json",
                f"X-Request-Timeout-Ms: {int(1e3 * deadline)}",
                f"Content-Length: {len(body)}",
            ]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            found = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, length = found.partition(b"\r\ncontent-length:")
            answer = await reader.readexactly(int(length.partition(b"\r\n")[0]))
            is_whole = b"\r\nconnection: close" not in found
        finally:
            if is_whole:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return found, answer

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._port)


async def open_searches(address: str, index_id: str) -> Searches:
    """Returns the way to an address: HTTP if it is a URL, otherwise gRPC."""
    if address.startswith("http://"):
        return HttpSearches(address, index_id)
    return await GrpcSearches(address, index_id).ready()


def _has_retry_info(error: grpc.aio.AioRpcError) -> bool:
    metadata = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(metadata.get("grpc-status-details-bin", b""))
    return any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in status.details)
