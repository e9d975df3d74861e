"""Reads request bodies within limits of size and time."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive

from tandem.errors import DeadlineExceeded, MessageTooLarge


class CallerGone(Exception):
    """The caller closed the connection, so an answer cannot be sent."""


def declared_byte_count(headers: Headers) -> int | None:
    """Returns the content-length; None if the body's size is not declared."""
    text = headers.get("content-length")
    return int(text) if text is not None and text.isdecimal() else None


def check_size(byte_count: int, max_bytes: int) -> None:
    """Raises MessageTooLarge."""
    if byte_count > max_bytes:
        raise MessageTooLarge(why=f"the body has over {max_bytes:,} bytes")


async def read_body(receive: Receive, max_bytes: int, seconds: float) -> bytes:
    """Returns the body; raises MessageTooLarge, DeadlineExceeded or CallerGone.

    It never holds more than `max_bytes` and one piece from the network.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGone
                body += message.get("body", b"")
                check_size(len(body), max_bytes)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise DeadlineExceeded(what=f"a wait of {seconds:g} s for the body") from None
