"""What is tried with longer times: until it holds, and a fault shows with all of them."""

import pytest

from tests.support.chassis.longer_times import holds_with_longer_times


async def test_a_check_that_passes_with_longer_times_passes() -> None:
    factors = []

    async def check(factor: float) -> None:
        factors.append(factor)
        assert factor > 3

    await holds_with_longer_times(check)

    assert factors == [1, 4]


async def test_a_failure_is_reported_with_the_earlier_ones() -> None:
    async def check(factor: float) -> None:
        assert factor < 0, f"{factor} is not enough"

    with pytest.raises(AssertionError, match="16 is not enough") as caught:
        await holds_with_longer_times(check)

    [note] = caught.value.__notes__
    assert [line.split(":")[0] for line in note.splitlines() if "with times" in line] == [
        "with times 1 times as long",
        "with times 4 times as long",
    ]
