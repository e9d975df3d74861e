"""Repeats failed calls within their deadline, and no more of them than a budget allows.

It follows gRPC's retry design (gRFC A6): exponential backoff with full jitter, a token bucket a
client, and delays that the server names. gRPC's own retries go by the status code, but Tandem has
errors with the same code of which some can be retried and others cannot.
"""

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tandem.client.calls.refusal import Pushback, pushback_of
from tandem.errors import Overloaded, QuotaExceeded, TandemError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after what time a client repeats a failed call.

    All attempts together have the client's `timeout_seconds`.
    """

    max_attempt_count: int = 4
    """The first attempt and its repetitions; 1 for no repetition."""
    initial_backoff_seconds: float = 0.1
    """The longest wait before the second attempt; the wait is random between 0 and this."""
    backoff_multiplier: float = 2.0
    """The factor by which the longest wait grows with each attempt."""
    max_backoff_seconds: float = 2.0
    """The limit of the longest wait. A delay that the server names may be longer."""
    budget_tokens: float = 10.0
    """The budget's tokens. A failed attempt takes one, and so do all that one broken connection
    fails together; with half of them or fewer left, nothing is repeated."""
    budget_refill: float = 0.1
    """The tokens that an answered call puts back."""
    ingest_wait_seconds: float = 300.0
    """How long an ingest, which has no deadline, sends items again while none is stored. A server
    that is very busy takes a minute to refuse a batch."""

    def __post_init__(self) -> None:
        """Raises ValueError for a number that makes no sense."""
        if self.max_attempt_count < 1:
            raise ValueError(f"max_attempt_count is {self.max_attempt_count}; it is at least 1")
        if not 0 <= self.initial_backoff_seconds <= self.max_backoff_seconds:
            raise ValueError("initial_backoff_seconds is from 0 to max_backoff_seconds")
        if self.backoff_multiplier < 1:
            raise ValueError(f"backoff_multiplier is {self.backoff_multiplier}; it is at least 1")
        if self.budget_tokens <= 0 or self.budget_refill < 0:
            raise ValueError("budget_tokens is above 0, and budget_refill at least 0")


DEFAULT_RETRIES = RetryPolicy()
NO_RETRIES = RetryPolicy(max_attempt_count=1)
"""Each call is tried once."""


class RetryThrottle:
    """The budget of one client: a bucket of tokens, for calls from any thread."""

    def __init__(self, policy: RetryPolicy) -> None:
        """Starts full."""
        self._policy = policy
        self._tokens = policy.budget_tokens
        self._break_time = -math.inf
        self._lock = threading.Lock()

    def note_answer(self) -> None:
        """Puts back a part of a token."""
        with self._lock:
            policy = self._policy
            self._tokens = min(policy.budget_tokens, self._tokens + policy.budget_refill)

    def take(self, begin_time: float = math.inf, break_time: float = -math.inf) -> bool:
        """Notes a failure, and returns whether more than half of the tokens are left.

        Those that began before a break that is noted already were in flight with it: they failed
        with the same connection, and take nothing.
        """
        with self._lock:
            if begin_time >= self._break_time:
                self._tokens = max(0.0, self._tokens - 1.0)
                self._break_time = max(self._break_time, break_time)
            return self._tokens > self._policy.budget_tokens / 2


class Retries:
    """Decides for one client which failed calls are repeated, and when."""

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`draw` returns numbers from 0 to 1."""
        self.policy = policy
        self.clock = clock
        self.draw = draw
        self.throttle = RetryThrottle(policy)

    def backoff_seconds(self, repeated_count: int) -> float:
        """Returns the random wait after so many repetitions without success."""
        policy = self.policy
        # Bounded, because a power of many repetitions overflows.
        growth = policy.backoff_multiplier ** min(repeated_count, 64)
        longest_seconds = min(policy.max_backoff_seconds, policy.initial_backoff_seconds * growth)
        return longest_seconds * self.draw()

    def start(self, timeout_seconds: float, *, is_repeatable: bool) -> "CallAttempts":
        """Returns the attempts of a call that begins now.

        Set `is_repeatable` only for a method whose effect is the same if it is called twice.
        """
        return CallAttempts(self, self.clock() + timeout_seconds, is_repeatable)


class CallAttempts:
    """The attempts of one call, which share its deadline."""

    def __init__(self, retries: Retries, deadline_time: float, is_repeatable: bool) -> None:
        self._retries = retries
        self._deadline_time = deadline_time
        self._left_count = retries.policy.max_attempt_count - 1 if is_repeatable else 0
        self._repeated_count = 0
        self._begin_time = retries.clock()

    @property
    def timeout_seconds(self) -> float:
        """The time that is left until the call's deadline."""
        return max(0.0, self._deadline_time - self._retries.clock())

    def note_answer(self) -> None:
        """Notes that the call was answered."""
        self._retries.throttle.note_answer()

    def delay_after(self, error: TandemError, *, is_break: bool = False) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if there is none.

        `is_break` says that no server answered: the connection broke, with all calls on it.
        There is none after an error that a repetition cannot change, after the last attempt,
        without a budget, and if the wait would last until the deadline.
        """
        if not is_passing(error):
            return None
        now, throttle = self._retries.clock(), self._retries.throttle
        has_budget = throttle.take(self._begin_time, now) if is_break else throttle.take()
        pushback = pushback_of(error)
        if not has_budget or self._left_count == 0 or pushback is Pushback.NEVER:
            return None
        self._left_count -= 1
        if pushback is None:
            pushback = self._retries.backoff_seconds(self._repeated_count)
            self._repeated_count += 1
        self._begin_time = now + pushback
        return pushback if pushback < self.timeout_seconds else None


def is_passing(error: TandemError) -> bool:
    """Returns whether the same call may succeed later: the server is busy or unavailable."""
    return error.status == "UNAVAILABLE" or isinstance(error, Overloaded | QuotaExceeded)
