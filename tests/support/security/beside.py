"""A second caller beside an attack: how long its calls take meanwhile, and whether they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.support.security.run_counts import is_full

MOST_SECONDS = 1.0
# The quick runs have few calls, beside other tests: a busy machine takes seconds for milliseconds.
MOST_BUSY_SECONDS = 10.0
_PAUSE_SECONDS = 0.02


@dataclass(slots=True)
class Beside:
    """What the second caller saw."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Returns the time within which so many of the calls ended."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]

    def check(self, name: str) -> None:
        """Prints the times; raises AssertionError if a call failed, or took too long."""
        print(
            f"{name}: {len(self.seconds)} calls beside it, {len(self.failures)} failed, "
            f"p50 {self.quantile(0.5):.3f} s, p99 {self.quantile(0.99):.3f} s, "
            f"longest {self.quantile(1.0):.3f} s"
        )
        assert not self.failures, (name, self.failures[:3])
        most_seconds = MOST_SECONDS if is_full() else MOST_BUSY_SECONDS
        assert self.quantile(0.99) < most_seconds, (name, self.seconds)


@asynccontextmanager
async def beside(call: Callable[[], Awaitable[object]]) -> AsyncIterator[Beside]:
    """Makes one call after another while the body runs, and at least one."""
    seen, is_ended = Beside(), False

    async def several() -> None:
        while not seen.seconds or not is_ended:
            start_time = time.monotonic()
            try:
                await call()
            except Exception as error:
                seen.failures.append(repr(error))
            seen.seconds.append(time.monotonic() - start_time)
            await asyncio.sleep(_PAUSE_SECONDS)

    calling = asyncio.create_task(several())
    try:
        yield seen
    finally:
        is_ended = True
        await calling
