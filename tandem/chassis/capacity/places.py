"""Shares places and bytes among callers, so that none can keep the others out."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# A caller that asked so recently is still there, for those who ask now.
_ASKING_SECONDS = 1.0
# Where all is taken, those who have least get so much more.
_RESERVE = 0.5


@dataclass(slots=True)
class _Share:
    """What one caller has, and who of it waits."""

    count: int = 0
    byte_count: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class Places:
    """A number of places, and of bytes in them. For one event loop.

    A caller that is alone may have all of them; while others ask, half. When all are taken, a
    caller that has less than its share gets a part of a reserve, half as large again, so that
    the first to come does not keep it out. What is in use when nothing else is may be any size.
    """

    def __init__(
        self,
        max_count: int,
        max_bytes: float = math.inf,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.byte_count = 0
        self._shares: dict[str, _Share] = {}
        self._now = now
        self._asker, self._asked_time, self._other_asked_time = "", -math.inf, -math.inf

    def of(self, caller: str) -> tuple[int, int]:
        """Returns how many places and bytes `caller` has."""
        share = self._shares.get(caller, _NOTHING)
        return share.count, share.byte_count

    def lack(self, caller: str, count: int = 1, byte_count: int = 0) -> str:
        """Returns what `caller` cannot have so much more of: "count" or "bytes", or "" if it can.

        Notes that it asks.
        """
        now = self._now()
        if caller != self._asker:
            self._asker, self._other_asked_time = caller, self._asked_time
        self._asked_time = now
        return self._lack(caller, count, byte_count)

    def others_ask(self, caller: str) -> bool:
        """Returns whether another than `caller` asked a moment ago."""
        other_time = self._other_asked_time if caller == self._asker else self._asked_time
        return self._now() - other_time < _ASKING_SECONDS

    def take(self, caller: str, count: int = 1, byte_count: int = 0) -> None:
        """Takes places and bytes, even if they do not fit."""
        # Behind the others, of whom those that waited longest come first among equals.
        share = self._shares[caller] = self._shares.pop(caller, _Share())
        for each in (self, share):
            each.count += count
            each.byte_count += byte_count

    def give_back(self, caller: str, count: int = 1, byte_count: int = 0) -> None:
        """Releases places and bytes."""
        share = self._shares[caller]
        for each in (self, share):
            each.count -= count
            each.byte_count -= byte_count
        self._forget(caller)
        self._let_in()

    @contextmanager
    def taken(self, caller: str, count: int = 1, byte_count: int = 0) -> Iterator[None]:
        """Holds places and bytes, even if they do not fit."""
        self.take(caller, count, byte_count)
        try:
            yield
        finally:
            self.give_back(caller, count, byte_count)

    async def wait_and_take(self, caller: str, byte_count: int = 0) -> None:
        """Waits for a place and takes it: before others who have more, after those of `caller`."""
        lack, share = self.lack(caller, 1, byte_count), self._shares.setdefault(caller, _Share())
        if not lack and not share.waiting:
            self.take(caller, 1, byte_count)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append((byte_count, place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give_back(caller, 1, byte_count)
            else:
                share.waiting.remove((byte_count, place))
                self._forget(caller)
                self._let_in()
            raise

    def _let_in(self) -> None:
        """Gives free places to those who wait: the caller that has least comes first."""
        waiting = [each for each in self._shares.items() if each[1].waiting]
        for caller, share in sorted(waiting, key=lambda each: each[1].count):
            byte_count, place = share.waiting[0]
            if not (place.cancelled() or self._lack(caller, 1, byte_count)):
                share.waiting.popleft()
                self.take(caller, 1, byte_count)
                place.set_result(None)
                self._let_in()
                return

    def _lack(self, caller: str, count: int, byte_count: int) -> str:
        others_ask = self.others_ask(caller)

        def fits(more: int, held: int, used: int, most: float) -> bool:
            if not used or not more:
                return True
            if used + more <= most:
                return not (held and others_ask) or held + more <= most / 2
            left = most * (1 + _RESERVE) - used
            return more <= left and (
                not held or held + more <= min(most / len(self._shares), left / 2)
            )

        count_of_caller, bytes_of_caller = self.of(caller)
        if not fits(count, count_of_caller, self.count, self.max_count):
            return "count"
        return "" if fits(byte_count, bytes_of_caller, self.byte_count, self.max_bytes) else "bytes"

    def _forget(self, caller: str) -> None:
        share = self._shares[caller]
        if not (share.count or share.byte_count or share.waiting):
            del self._shares[caller]


_NOTHING = _Share()
