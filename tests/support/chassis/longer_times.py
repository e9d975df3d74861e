"""Tries what compares times again with longer ones, so that the code decides and not the machine.

A busy machine adds some time to a wait, whatever its length; a fault in the code holds at any
length. So what fails for the machine's sake holds where all times are longer, and a fault never
does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

FACTORS = (1, 4, 16)


async def holds_with_longer_times(
    check: Callable[[float], Awaitable[None]], *, factors: tuple[float, ...] = FACTORS
) -> None:
    """Runs the check with one factor of its times after another, until it holds with one.

    Raises what it raised with the last. The check rebuilds everything that keeps a state.
    """
    before: list[str] = []
    for factor in factors:
        try:
            await check(factor)
        except Exception as error:
            before.append(f"with times {factor} times as long: {type(error).__name__}: {error}")
            if factor == factors[-1]:
                error.add_note("\n".join(before[:-1]))
                raise
        else:
            return
