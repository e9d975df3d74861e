"""Removes items, each on the shard that owns it, or an index on all shards."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.contract.limits import MAX_ITEM_ID_COUNT, check_batch_size
from tandem.contract.search.answer import Removal
from tandem.errors import (
    DeadlineExceeded,
    GenerationRefused,
    IndexNotFound,
    ServiceUnavailable,
    TandemError,
    WriterRefused,
    error_from_reason,
)
from tandem.search.calls.fan_out import answer_or_error
from tandem.search.indexes.router import Router, check_alias
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token
from tandem.search.writes.write_id import refused_by_name, shard_request_id
from tandem.stages.aliases import Generation
from tandem.stages.item_write import Committed, Delete
from tandem.stages.items import Deleted
from tandem.stages.shard import Shard

T = TypeVar("T")

# After these errors a shard may still have deleted: perhaps only the answer was lost.
_UNKNOWN_OUTCOMES = (ServiceUnavailable, DeadlineExceeded)
_SHOWN_ID_COUNT = 3


class Remover:
    """Removes items from all shards."""

    def __init__(self, router: Router, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes `shards` by number, as many as the map has."""
        self._router = router
        self._shards = shards
        self._shard_map = shard_map

    async def remove(
        self, index_id: str, item_ids: Sequence[str], request_id: str, deadline: Deadline
    ) -> Removal:
        """Deletes the ids durably on every shard that owns one.

        Raises BatchSizeOutOfRange, IndexIdInvalid, ItemIdInvalid and RequestIdInvalid before it
        calls any shard; and, once all shards have ended, the error of the first that failed, with
        the outcome of the ids. Never answers for some of the shards only. What a shard refuses,
        because another generation serves since, is deleted in that one.
        """
        check_alias(index_id)
        check_request_id(request_id)
        check_batch_size("item_ids", len(item_ids), MAX_ITEM_ID_COUNT)
        owned = self._shard_map.group(index_id, map(check_item_id, dict.fromkeys(item_ids)))

        first = await self._router.route(index_id, deadline)
        switches: dict[str, int] = {}

        async def delete_on(number: int, ids: Sequence[str]) -> Committed:
            own_id = shard_request_id(request_id, number, self._shard_map)
            route = first
            while True:
                switches[index_id] = route.record.switch_count
                write = Delete(route.index_id, ids, own_id)
                try:
                    with refused_by_name(request_id):
                        return await self._shards[number].write(write, deadline)
                except WriterRefused as error:
                    route = await self._router.again(error, route, deadline)

        done, failures = await _ended({n: delete_on(n, ids) for n, ids in owned.items()})
        removed_count = sum(each.deleted_count for each in done.values())
        if failures:
            raise _failure(failures, owned, removed_count)
        return Removal(removed_count, make_token(_sequences(done), self._shard_map, switches))

    async def remove_index(self, index_id: str, deadline: Deadline) -> Removal:
        """Removes an index, or a part of a large one, from all shards; repeat until complete.

        Raises IndexIdInvalid, IndexNotFound if no shard has it, and, once all shards have ended,
        the error of the first that failed, with the number of items removed.
        """
        check_index_id(index_id)
        done, failures = await _ended(
            {n: each.delete_index(index_id, deadline) for n, each in enumerate(self._shards)}
        )
        removed_count = sum(each.count for each in done.values())
        if failures:
            first = failures[min(failures)]
            raise error_from_reason(
                first.reason,
                f"{removed_count:,} items are removed, {len(failures)} of {len(self._shards)} "
                f"shards failed; repeat the call, which is safe: {first.message}",
                first.metadata,
            )
        if not done:
            raise IndexNotFound(index_id=index_id)
        token = make_token(_sequences(done), self._shard_map)
        return Removal(removed_count, token, all(each.is_complete for each in done.values()))

    async def only_generation(self, alias: str, deadline: Deadline) -> str:
        """Returns the index to remove for an alias, and has its next items decide its model.

        Raises IndexIdInvalid, and GenerationRefused if there are several.
        """
        book = self._router.book
        await self._router.route(check_alias(alias), deadline)
        with suppress(TandemError):
            await book.refresh(deadline)
        record = book.record(alias)
        if len(record.generations) > 1:
            ids = ", ".join(each.index_id for each in record.generations)
            raise GenerationRefused(
                why=f"{alias} has the generations {ids}; drop all but one first"
            )
        if record.fingerprint_of(record.serving):
            emptied = replace(record, generations=(Generation(record.serving),))
            await book.put(emptied, deadline)
        return record.serving


def _sequences(done: Mapping[int, Deleted | Committed]) -> dict[int, int]:
    return {number: each.sequence for number, each in done.items()}


async def _ended(
    deletes: Mapping[int, Awaitable[T]],
) -> tuple[Mapping[int, T], Mapping[int, TandemError]]:
    """Returns what each shard deleted, and the errors; a shard without the index has neither."""
    # Not a fan_out, which would cancel the other deletes and leave their outcome unknown.
    answers = await asyncio.gather(
        *(answer_or_error(each, TandemError) for each in deletes.values())
    )
    by_shard = dict(zip(deletes, answers, strict=True))
    done = {n: each for n, each in by_shard.items() if not isinstance(each, TandemError)}
    failed = {n: each for n, each in by_shard.items() if isinstance(each, TandemError)}
    return done, {n: each for n, each in failed.items() if not isinstance(each, IndexNotFound)}


def _failure(
    failures: Mapping[int, TandemError], owned: Mapping[int, Sequence[str]], removed_count: int
) -> TandemError:
    """Returns the first shard's error, with the outcome of all ids."""
    unknown = [
        item_id
        for number, error in failures.items()
        if isinstance(error, _UNKNOWN_OUTCOMES)
        for item_id in owned[number]
    ]
    kept_count = sum(len(owned[number]) for number in failures) - len(unknown)
    outcomes = [f"{removed_count:,} items are removed"]
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
            "removed_count": str(removed_count),
            "refused_count": str(kept_count),
            "unknown_count": str(len(unknown)),
        },
    )


def _shown(item_ids: Iterable[str]) -> str:
    ids = sorted(item_ids)
    # The beginning identifies an id of 256 bytes.
    names = ", ".join(ascii(item_id)[:40] for item_id in ids[:_SHOWN_ID_COUNT])
    return f"{names} …" if len(ids) > _SHOWN_ID_COUNT else names
