"""Waits for a condition, with a deadline."""

import asyncio
import time
from collections.abc import Callable


async def wait_until(
    is_true: Callable[[], bool], timeout_seconds: float, what: str, pause_seconds: float = 0.01
) -> float:
    """Returns the seconds until it was true; raises AssertionError if it never was."""
    start_time = time.monotonic()
    while not is_true():
        waited_seconds = time.monotonic() - start_time
        assert waited_seconds < timeout_seconds, f"not within {timeout_seconds} s: {what}"
        await asyncio.sleep(pause_seconds)
    return time.monotonic() - start_time
