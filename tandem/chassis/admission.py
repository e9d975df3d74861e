"""Limits how much a service does at once, and tells refused callers when to retry."""

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
# The window over which the pace of calls is measured.
_PACE_SECONDS = 2.0
# One call may take a fourth of all places.
_LARGEST_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Limits on what is in flight; bytes are those of requests on the wire.

    Unary calls and request streams have separate limits, so that neither can starve the other.
    """

    max_inflight_count: int = 64
    """Unary calls."""
    max_inflight_bytes: int = 256 * _MIB
    max_stream_count: int = 16
    """Open request streams."""
    max_stream_message_count: int = 16
    """Unanswered messages of all streams."""
    max_stream_bytes: int = 256 * _MIB
    max_stream_count_by_caller: int = 8
    """Streams of one token or, without tokens, of one host."""
    max_idle_seconds: float = 300.0
    """How long an answered stream may send nothing, or a stream may leave its answers unread."""
    max_answer_bytes: int = 256 * _MIB
    """Answers that callers have not read yet; one caller may hold half of them."""
    max_awaited_count: int = 512
    """Calls whose request has not arrived, or is large and not parsed yet."""
    max_awaited_count_by_caller: int = 128
    max_message_wait_seconds: float = 20.0
    """How long a request may take from its first byte to its last."""
    max_probe_wait_seconds: float = 5.0
    """The same for a health or reflection request, which is small."""
    max_probe_count: int = 1024
    """Open health and reflection calls; a newer one ends an older one."""
    call_weights: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    """The number of places that a request takes, by method; by default one."""

    def weight(self, method: str, request: object) -> int:
        """Returns how many places `request` takes: at most a fourth of all."""
        weigh = self.call_weights.get(method)
        if weigh is None:
            return 1
        return max(1, min(weigh(request), self.max_inflight_count // _LARGEST_SHARE))


DEFAULT_LIMITS = AdmissionLimits()


class Room:
    """Counts the places and bytes in use."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self.count = 0
        self.byte_count = 0
        self._freed = asyncio.Event()
        self._turn = asyncio.Lock()

    def lacks_places(self, count: int = 1) -> bool:
        """Returns whether `count` more do not fit. Anything fits when nothing is in use."""
        return self.count > 0 and self.count + count > self._max_count

    def lacks_bytes(self, byte_count: int) -> bool:
        """Returns whether `byte_count` more do not fit. Anything fits when nothing is in use."""
        return self.count > 0 and self.byte_count + byte_count > self._max_bytes

    def take(self, count: int, byte_count: int) -> None:
        """Takes places and bytes, even if they do not fit."""
        self.count += count
        self.byte_count += byte_count

    def give_back(self, count: int, byte_count: int) -> None:
        """Releases places and bytes."""
        self.count -= count
        self.byte_count -= byte_count
        self._freed.set()

    async def wait_and_take(self, byte_count: int) -> None:
        """Waits for one place and takes it, first come, first served."""
        async with self._turn:
            while self.lacks_places() or self.lacks_bytes(byte_count):
                self._freed.clear()
                await self._freed.wait()
            self.take(1, byte_count)


class Pace:
    """Measures how fast calls end, to suggest retry delays."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._ended = 0.0  # Weighted by age.
        self._ended_time = now()
        self._turn_time = now()

    def note_end(self) -> None:
        """Records that a place became free."""
        self._age()
        self._ended += 1.0

    def retry_delay_seconds(self) -> float:
        """Returns the retry delay: one interval more for each caller refused in a row.

        An interval is the current time between two calls' ends, so that callers refused together
        retry one after another, when there is room. The delay is bounded on both sides.
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
