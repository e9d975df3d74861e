"""Limits how much a service does at once, and tells refused callers when to retry."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from tandem.chassis.capacity.places import Places
from tandem.chassis.telemetry.metrics import (
    ADMISSION_LIMIT,
    ADMISSION_REFUSED,
    ANSWER_BYTES,
    INFLIGHT_BYTES,
)
from tandem.errors import Overloaded

MIN_RETRY_DELAY_SECONDS = 0.05
MAX_RETRY_DELAY_SECONDS = 5.0

LEAST_BYTES_A_SECOND = 64 * 1024
"""A caller that reads or sends more slowly is given up."""

_MIB = 1024 * 1024
# The window over which the pace of calls is measured.
_PACE_SECONDS = 2.0
# Of a caller that has its share, while others ask.
_REFUSAL_SECONDS = 0.25
# One call may take a fourth of all places.
_LARGEST_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Limits on what is in flight; bytes are those of requests on the wire.

    Unary calls and request streams have separate limits, so that neither can starve the other.
    Callers share each of them (`chassis/capacity/places.py`).
    """

    max_inflight_count: int = 64
    """Unary calls."""
    max_inflight_bytes: int = 256 * _MIB
    max_stream_count: int = 16
    """Open request streams."""
    max_stream_message_count: int = 16
    """Unanswered messages of all streams."""
    max_stream_bytes: int = 256 * _MIB
    max_idle_seconds: float = 300.0
    """How long an answered stream may send nothing."""
    max_answer_count: int = 1024
    """Answers that callers have not read yet."""
    max_answer_bytes: int = 256 * _MIB
    max_unread_seconds: float = 5.0
    """How long an answer may wait for its caller to read it, and a second more for each 64 KiB."""
    max_awaited_count: int = 512
    """Calls whose request has not arrived, or is large and not parsed yet."""
    max_message_wait_seconds: float = 20.0
    """How long a request may take from its first byte to its last."""
    max_probe_wait_seconds: float = 5.0
    """The same for a health or reflection request, which is small."""
    max_probe_count: int = 1024
    """Open health and reflection calls; a newer one ends an older one."""
    call_weights: Mapping[str, Callable[[Any], int]] = field(default_factory=dict)
    """The number of places that a request takes, by method; by default one."""

    def unread_seconds(self, byte_count: int) -> float:
        """Returns how long an answer of that size may stay unread."""
        return self.max_unread_seconds + byte_count / LEAST_BYTES_A_SECOND

    def weight(self, method: str, request: object) -> int:
        """Returns how many places `request` takes: at most a fourth of all."""
        weigh = self.call_weights.get(method)
        if weigh is None:
            return 1
        return max(1, min(weigh(request), self.max_inflight_count // _LARGEST_SHARE))


DEFAULT_LIMITS = AdmissionLimits()


class Admission:
    """What a service has in flight, by caller; refuses by name what does not fit."""

    def __init__(self, service: str, limits: AdmissionLimits) -> None:
        self.limits = limits
        self.messages = Places(limits.max_stream_message_count, limits.max_stream_bytes)
        self._service = service
        self._calls = Places(limits.max_inflight_count, limits.max_inflight_bytes)
        self._streams = Places(limits.max_stream_count)
        self._answers = Places(limits.max_answer_count, limits.max_answer_bytes)
        self._pace = Pace()
        for limit, most in (
            ("count", limits.max_inflight_count),
            ("bytes", limits.max_inflight_bytes),
            ("streams", limits.max_stream_count),
            ("answers", limits.max_answer_bytes),
        ):
            if most:
                ADMISSION_LIMIT.labels(service, limit).set(most)
                # A counter that appears with its first count hides that count from rate().
                ADMISSION_REFUSED.labels(service, limit)
        INFLIGHT_BYTES.labels(service).set_function(
            lambda: self._calls.byte_count + self.messages.byte_count
        )
        ANSWER_BYTES.labels(service).set_function(lambda: self._answers.byte_count)

    async def begin_call(self, caller: str) -> None:
        """Raises Overloaded if there is no place for a call of `caller`.

        While others ask, it waits a moment for one: a caller that does not heed the retry delay
        would otherwise take as much time with its refusals as they have for their calls.
        """
        if self._calls.lack(caller) and self._calls.others_ask(caller):
            await asyncio.sleep(_REFUSAL_SECONDS)
        self.check_call(caller)

    def check_call(self, caller: str, count: int = 1, byte_count: int = 0) -> None:
        """Raises Overloaded if `caller` may not have such a call."""
        if limit := self._calls.lack(caller, count, byte_count):
            held = self._calls.of(caller)
            self._refuse(
                limit,
                f"serves {self._calls.count} calls already, {held[0]} of this caller"
                if limit == "count"
                else f"has {self._calls.byte_count:,} bytes of requests in flight, "
                f"{held[1]:,} of this caller",
            )

    @contextmanager
    def call(self, caller: str, count: int = 1, byte_count: int = 0) -> Iterator[None]:
        """Holds the places and bytes of a call; raises Overloaded."""
        self.check_call(caller, count, byte_count)
        try:
            with self._calls.taken(caller, count, byte_count):
                yield
        finally:
            self._pace.note_end()

    @contextmanager
    def body(self, caller: str) -> Iterator[Callable[[int], None]]:
        """Holds the bytes of a request as they arrive.

        Yields a function that counts so many more, or raises Overloaded.
        """
        byte_count = 0

        def grow(more: int) -> None:
            nonlocal byte_count
            self.check_call(caller, 0, more)
            self._calls.take(caller, 0, more)
            byte_count += more

        try:
            yield grow
        finally:
            if byte_count:
                self._calls.give_back(caller, 0, byte_count)

    @contextmanager
    def stream(self, caller: str) -> Iterator[None]:
        """Holds the place of a stream of requests; raises Overloaded."""
        if self._streams.lack(caller):
            self._refuse(
                "streams",
                f"serves {self._streams.count} streams already, {self._streams.of(caller)[0]} of "
                "this caller",
            )
        try:
            with self._streams.taken(caller):
                yield
        finally:
            self._pace.note_end()

    def hold_answer(self, caller: str, byte_count: int) -> Callable[[], None]:
        """Counts an answer until the function that it returns is called; raises Overloaded."""
        if self._answers.lack(caller, 1, byte_count):
            count, bytes_of_caller = self._answers.of(caller)
            self._refuse(
                "answers",
                f"has {self._answers.byte_count:,} bytes of unread answers, {bytes_of_caller:,} "
                f"in {count} of this caller; read them, or request less",
            )
        self._answers.take(caller, 1, byte_count)
        return partial(self._answers.give_back, caller, 1, byte_count)

    @contextmanager
    def answer(self, caller: str, byte_count: int) -> Iterator[None]:
        """Counts an answer until the block ends; raises Overloaded."""
        give_back = self.hold_answer(caller, byte_count)
        try:
            yield
        finally:
            give_back()

    def _refuse(self, limit: str, what: str) -> NoReturn:
        ADMISSION_REFUSED.labels(self._service, limit).inc()
        raise Overloaded(
            what=f"{self._service} {what}", retry_delay_seconds=self._pace.retry_delay_seconds()
        )


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
