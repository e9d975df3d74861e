"""Removes items, each on the shard that owns it, or an index on all shards."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.contract.limits import MAX_ITEM_ID_COUNT, check_batch_size
from tandem.contract.search.answer import Removal
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ServiceUnavailable,
    TandemError,
    error_from_reason,
)
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token
from tandem.search.writes.write_id import refused_by_name, shard_request_id
from tandem.stages.item_write import Committed, Delete
from tandem.stages.items import Deleted
from tandem.stages.shard import Shard

# After these errors a shard may still have deleted: perhaps only the answer was lost.
_UNKNOWN_OUTCOMES = (ServiceUnavailable, DeadlineExceeded)
_SHOWN_ID_COUNT = 3


class Remover:
    """Removes items from all shards."""

    def __init__(self, shards: Sequence[Shard], shard_map: ShardMap) -> None:
        """Takes `shards` by number, as many as the map has."""
        self._shards = shards
        self._shard_map = shard_map

    async def remove(
        self, index_id: str, item_ids: Sequence[str], request_id: str, deadline: Deadline
    ) -> Removal:
        """Deletes the ids durably on every shard that owns one.

        Raises BatchSizeOutOfRange, IndexIdInvalid, ItemIdInvalid and RequestIdInvalid before it
        calls any shard; and, once all shards have ended, the error of the first that failed, with
        the outcome of the ids. Never answers for some of the shards only.
        """
        check_index_id(index_id)
        check_request_id(request_id)
        check_batch_size("item_ids", len(item_ids), MAX_ITEM_ID_COUNT)
        owned = self._shard_map.group(index_id, map(check_item_id, dict.fromkeys(item_ids)))
        # Not a fan_out, which would cancel the other deletes and leave their outcome unknown.
        outcomes = await asyncio.gather(
            *(
                self._delete_on(number, index_id, ids, request_id, deadline)
                for number, ids in owned.items()
            )
        )
        done, failures = {}, {}
        for number, outcome in zip(owned, outcomes, strict=True):
            if isinstance(outcome, TandemError):
                failures[number] = outcome
            elif outcome:
                done[number] = outcome
        removed_count = sum(each.deleted_count for each in done.values())
        if failures:
            raise _failure(failures, owned, removed_count)
        return Removal(removed_count, self._token(done))

    async def remove_index(self, index_id: str, deadline: Deadline) -> Removal:
        """Removes an index, or a part of a large one, from all shards; repeat until complete.

        Raises IndexIdInvalid, IndexNotFound if no shard has it, and, once all shards have ended,
        the error of the first that failed, with the number of items removed.
        """
        check_index_id(index_id)
        outcomes = await asyncio.gather(
            *(self._delete_index_on(shard, index_id, deadline) for shard in self._shards)
        )
        done = {n: each for n, each in enumerate(outcomes) if isinstance(each, Deleted)}
        removed_count = sum(each.count for each in done.values())
        failures = [each for each in outcomes if isinstance(each, TandemError)]
        if failures:
            first = failures[0]
            raise error_from_reason(
                first.reason,
                f"{removed_count:,} items are removed, {len(failures)} of {len(outcomes)} shards "
                f"failed; repeat the call, which is safe: {first.message}",
                first.metadata,
            )
        if not done:
            raise IndexNotFound(index_id=index_id)
        return Removal(
            removed_count, self._token(done), all(each.is_complete for each in done.values())
        )

    def _token(self, done: Mapping[int, Deleted | Committed]) -> str:
        sequences = {number: each.sequence for number, each in done.items()}
        return make_token(sequences, self._shard_map)

    async def _delete_index_on(
        self, shard: Shard, index_id: str, deadline: Deadline
    ) -> Deleted | TandemError | None:
        """Returns None if the shard has no such index."""
        try:
            return await shard.delete_index(index_id, deadline)
        except IndexNotFound:
            return None
        except TandemError as error:
            return error

    async def _delete_on(
        self,
        number: int,
        index_id: str,
        item_ids: Sequence[str],
        request_id: str,
        deadline: Deadline,
    ) -> Committed | TandemError | None:
        """Returns None if the shard never had an item of the index."""
        try:
            with refused_by_name(request_id):
                own_id = shard_request_id(request_id, number, self._shard_map)
                delete = Delete(index_id, item_ids, own_id)
                return await self._shards[number].write(delete, deadline)
        except IndexNotFound:
            return None
        except TandemError as error:
            return error


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
