"""Chooses the client of each call: the server's own, or one with the caller's token."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.requests import Request

from tandem.client import Access, AsyncClient
from tandem.errors import Unauthenticated

_SCHEME = "bearer "


class CallerClients:
    """Opens clients of one orchestrator. Use it in an async with statement."""

    def __init__(
        self, address: str, access: Access, timeout_seconds: float, *, is_token_lent: bool
    ) -> None:
        """Create it while the event loop runs; raises AddressInvalid, a ValueError.

        With `is_token_lent`, callers without a token of their own use that of `access`.
        """
        self._address = address
        self._access = access
        self._timeout_seconds = timeout_seconds
        self._lent = access if is_token_lent else replace(access, token=None)
        self._own = AsyncClient(address, timeout_seconds, self._lent)

    @asynccontextmanager
    async def of(self, request: Request | None) -> AsyncIterator[AsyncClient]:
        """Gives the client for a call; `request` is None unless it came by HTTP.

        Raises Unauthenticated for a header that is not a bearer token.
        """
        header = request.headers.get("authorization") if request is not None else None
        if header is None:
            yield self._own
            return
        if not header.lower().startswith(_SCHEME):
            raise Unauthenticated(why="send 'Authorization: Bearer TOKEN' with a token of Tandem")
        access = replace(self._access, token=header[len(_SCHEME) :])
        async with AsyncClient(self._address, self._timeout_seconds, access) as client:
            yield client

    async def close(self) -> None:
        """Closes the server's own connection."""
        await self._own.close()
