"""Writes to the shards that own items, in the generation that serves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ServiceUnavailable,
    TandemError,
    WriterRefused,
    error_from_reason,
)
from tandem.search.calls.fan_out import answer_or_error
from tandem.search.indexes.router import Router
from tandem.search.shard_map import ShardMap
from tandem.search.writes.write_id import refused_by_name, shard_request_id
from tandem.stages.item_write import Committed, ShardWrite
from tandem.stages.shard import Shard

T = TypeVar("T")

# After these errors a shard may still have written: perhaps only the answer was lost.
_UNKNOWN_OUTCOMES = (ServiceUnavailable, DeadlineExceeded)
_SHOWN_ID_COUNT = 3


class ShardWrites:
    """Writes a part to each of some shards."""

    def __init__(self, router: Router, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes `shards` by number, as many as the map has."""
        self.router = router
        self.shards = shards
        self.shard_map = shard_map

    async def write(
        self,
        index_id: str,
        numbers: Iterable[int],
        make: Callable[[int, str, str], ShardWrite],
        request_id: str,
        deadline: Deadline,
    ) -> tuple[Mapping[int, Committed], Mapping[int, TandemError], Mapping[str, int]]:
        """Returns what each shard committed or failed by, and the switches that were known.

        `numbers` are those of the shards, and `make` makes the write of one to a generation under a
        request id. A shard without the index has neither. What a shard refuses, because another
        generation serves since, is written in that one.
        """
        first = await self.router.route(index_id, deadline)
        switches: dict[str, int] = {}

        async def write_on(number: int) -> Committed:
            own_id = shard_request_id(request_id, number, self.shard_map)
            route = first
            while True:
                switches[index_id] = route.record.switch_count
                write = make(number, route.index_id, own_id)
                try:
                    with refused_by_name(request_id):
                        return await self.shards[number].write(write, deadline)
                except WriterRefused as error:
                    route = await self.router.again(error, route, deadline)

        done, failures = await ended({number: write_on(number) for number in numbers})
        return done, failures, switches


async def ended(
    writes: Mapping[int, Awaitable[T]],
) -> tuple[Mapping[int, T], Mapping[int, TandemError]]:
    """Returns what each shard wrote, and the errors; a shard without the index has neither."""
    # Not a fan_out, which would cancel the other writes and leave their outcome unknown.
    answers = await asyncio.gather(
        *(answer_or_error(each, TandemError) for each in writes.values())
    )
    by_shard = dict(zip(writes, answers, strict=True))
    done = {n: each for n, each in by_shard.items() if not isinstance(each, TandemError)}
    failed = {n: each for n, each in by_shard.items() if isinstance(each, TandemError)}
    return done, {n: each for n, each in failed.items() if not isinstance(each, IndexNotFound)}


def write_failure(
    failures: Mapping[int, TandemError],
    owned: Mapping[int, Sequence[str]],
    done_count: int,
    verb: str,
) -> TandemError:
    """Returns the first shard's error, with the outcome of all ids; `verb` is "removed", say."""
    unknown = [
        item_id
        for number, error in failures.items()
        if isinstance(error, _UNKNOWN_OUTCOMES)
        for item_id in owned[number]
    ]
    kept_count = sum(len(owned[number]) for number in failures) - len(unknown)
    outcomes = [f"{done_count:,} items are {verb}"]
    if kept_count:
        outcomes.append(f"{kept_count:,} ids were refused and are unchanged")
    if unknown:
        outcomes.append(f"the outcome of {len(unknown):,} ids is unknown ({_shown(unknown)})")
    error = failures[min(failures)]
    return error_from_reason(
        error.reason,
        # The ids first: the message is cut at 512 characters, and gRPC's own text may be long.
        f"{', '.join(outcomes)}; repeat the call, which is safe: {error.message}",
        error.metadata
        | {
            f"{verb}_count": str(done_count),
            "refused_count": str(kept_count),
            "unknown_count": str(len(unknown)),
        },
    )


def _shown(item_ids: Iterable[str]) -> str:
    ids = sorted(item_ids)
    # The beginning identifies an id of 256 bytes.
    names = ", ".join(ascii(item_id)[:40] for item_id in ids[:_SHOWN_ID_COUNT])
    return f"{names} …" if len(ids) > _SHOWN_ID_COUNT else names
