"""Describes a server of another protocol in a service's process, which it calls directly."""

from __future__ import annotations

from typing import Protocol

from tandem.chassis.serve.direct_channel import DirectChannel


class AttachedServer(Protocol):
    """Listens while the service does, and drains before it."""

    def bind(self, channel: DirectChannel) -> None:
        """Takes its port, and the channel to the service; exits 1 if the port is taken."""

    def start(self) -> None:
        """Begins to serve."""

    async def ended(self) -> None:
        """Returns, or raises, once it has ended; a cancelled wait leaves it running."""

    async def drain(self) -> None:
        """Takes no more calls, and returns when those in flight have ended."""
