"""How much a service takes on at once, and when a caller that it refuses may come back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MIN_RETRY_DELAY_SECONDS = 0.05
MAX_RETRY_DELAY_SECONDS = 5.0

_MIB = 1024 * 1024
# How far back the pace of calls is looked at.
_PACE_SECONDS = 2.0
# Of all places, how many one call may take.
_LARGEST_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """What is under way at once, at most; bytes are those of requests as they arrive.

    Streams of requests have limits of their own, so that neither they nor single calls can take
    all there is.
    """

    max_inflight_count: int = 64
    """Calls with one request."""
    max_inflight_bytes: int = 256 * _MIB
    max_stream_count: int = 16
    """Streams of requests that are open."""
    max_stream_message_count: int = 16
    """Their messages that are not answered yet, of all streams together."""
    max_stream_bytes: int = 256 * _MIB
    max_stream_count_by_caller: int = 8
    """Streams of one token or, where tokens are not asked for, of one host."""
    max_idle_seconds: float = 300.0
    """How long a stream of requests may send none while all that it sent is answered, or take none
    of the answers that are there for it."""
    max_answer_bytes: int = 256 * _MIB
    """Of answers that their callers have not taken yet; half of them one caller's."""
    max_awaited_count: int = 512
    """Calls whose one request has not come yet, or is large and not parsed yet."""
    max_awaited_count_by_caller: int = 128
    max_message_wait_seconds: float = 20.0
    """How long that is waited for, from its first byte to its last."""
    max_probe_wait_seconds: float = 5.0
    """The same for one of health or reflection, which is small and comes with its headers."""
    max_probe_count: int = 1024
    """Health and reflection calls: those whose request has not come, and streams."""
    max_probe_count_by_connection: int = 32
    call_weights: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    """By method, how many places a request takes; one where the method is not named."""

    def weight(self, method: str, request: object) -> int:
        """Returns how many places `request` takes: at most a fourth of all, or it never got in."""
        weigh = self.call_weights.get(method)
        if weigh is None:
            return 1
        return max(1, min(weigh(request), self.max_inflight_count // _LARGEST_SHARE))


DEFAULT_LIMITS = AdmissionLimits()


class Room:
    """Places and bytes that what is under way shares."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.count = 0
        self.byte_count = 0
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()

    def lacks_places(self, count: int = 1) -> bool:
        """Whether `count` more do not fit; into an empty room anything does."""
        return self.count > 0 and self.count + count > self._max_count

    def lacks_bytes(self, byte_count: int) -> bool:
        """Whether `byte_count` more do not fit; into an empty room anything does."""
        return self.count > 0 and self.byte_count + byte_count > self._max_bytes

    def take(self, count: int, byte_count: int) -> None:
        """Takes them, whether they fit or not."""
        self.count += count
        self.byte_count += byte_count

    def give_back(self, count: int, byte_count: int) -> None:
        """Gives back what was taken."""
        self.count -= count
        self.byte_count -= byte_count
        self._freed.set()

    async def wait_and_take(self, byte_count: int) -> None:
        """Takes one place as soon as there is one; whoever came first goes first."""
        async with self._turn:
            while self.lacks_places() or self.lacks_bytes(byte_count):
                self._freed.clear()
                await self._freed.wait()
            self.take(1, byte_count)


class Pace:
    """How fast calls come to an end, and so when the next that was refused may come back."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ended = 0.0  # weighted by age
        self._ended_time = now()
        self._turn_time = now()

    def note_end(self) -> None:
        """Notes that a place has come free."""
        self._age()
        self._ended += 1.0

    def retry_delay_seconds(self) -> float:
        """Returns when to come back: each refused caller one interval after the one before.

        An interval is what lies between two calls' ends now, so that those who were refused
        together do not come back together, nor sooner than there is room. Bounded both ways.
        """
        self._age()
        interval_seconds = min(
            MAX_RETRY_DELAY_SECONDS, _PACE_SECONDS / max(self._ended, math.ulp(1.0))
        )
        now = self._now()
        turn_time = max(now, self._turn_time) + interval_seconds
        self._turn_time = min(turn_time, now + MAX_RETRY_DELAY_SECONDS)
        return max(MIN_RETRY_DELAY_SECONDS, self._turn_time - now)

    def _age(self) -> None:
        now = self._now()
        self._ended *= math.exp((self._ended_time - now) / _PACE_SECONDS)
        self._ended_time = now
