"""A token's quota of pairs: concurrent searches cannot exceed it."""

import asyncio
from hashlib import sha256
from pathlib import Path

import pytest

from tandem.chassis.access.callers import bind_caller
from tandem.chassis.access.tokens import Caller, TokenFile
from tandem.errors import QuotaExceeded
from tandem.search.rerank.pair_quota import PairQuota


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    """May have 200 pairs a second; time stands still."""
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[tokens.a]\nsha256 = "{sha256(b"a").hexdigest()}"\nscopes = ["search"]\n'
        'indexes = ["*"]\npairs_per_second = 200\n'
    )
    found = TokenFile(path, clock=lambda: 0.0).caller_of("a")
    assert found is not None
    return found


async def rerank(count: int, read_count: int) -> int:
    """Returns how many pairs were read; the cross-encoder takes a moment."""
    with PairQuota() as quota:
        quota.take(count)
        await asyncio.sleep(0.01)
        quota.note_read(read_count)
        return read_count


def fail_after(count: int) -> None:
    """Takes pairs, and reads none."""
    with PairQuota() as quota:
        quota.take(count)
        raise ValueError("it broke")


async def test_concurrent_searches_stay_within_the_quota(caller: Caller) -> None:
    """Ten of 20 pairs fit; the eleventh is refused with the time to retry."""
    bind_caller(caller)
    done = await asyncio.gather(*(rerank(20, 20) for _ in range(15)), return_exceptions=True)
    assert sum(each for each in done if isinstance(each, int)) == 200
    refused = [each for each in done if isinstance(each, QuotaExceeded)]
    assert len(refused) == 5
    assert refused[0].retry_delay_seconds == pytest.approx(0.1)


async def test_unread_pairs_are_refunded(caller: Caller) -> None:
    """Cached scores, a rerank that ended early, one that failed."""
    bind_caller(caller)
    for _ in range(50):
        assert await rerank(100, 2) == 2
        with pytest.raises(ValueError, match="broke"):
            fail_after(50)
    with pytest.raises(QuotaExceeded):
        await rerank(101, 101)
    assert await rerank(100, 100) == 100


async def test_without_tokens_there_is_no_quota() -> None:
    assert await rerank(10_000, 10_000) == 10_000
