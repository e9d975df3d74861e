"""Removes items, each on the shard that owns it, or an index on all shards."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.contract.limits import MAX_ITEM_ID_COUNT, check_batch_size
from tandem.contract.search.answer import Removal
from tandem.contract.search.item_changes import ItemsRemoval
from tandem.errors import (
    GenerationRefused,
    IndexNotFound,
    RequestMalformed,
    TandemError,
    error_from_reason,
)
from tandem.search.indexes.router import check_alias
from tandem.search.writes.consistency_token import make_token
from tandem.search.writes.selected import SelectedItems, Written
from tandem.search.writes.shard_writes import ShardWrites, ended, write_failure
from tandem.stages.aliases import Generation
from tandem.stages.item_write import Delete


class Remover:
    """Removes items from all shards."""

    def __init__(self, writes: ShardWrites, selected: SelectedItems) -> None:
        self._writes = writes
        self._selected = selected

    async def remove(self, asked: ItemsRemoval, deadline: Deadline) -> Removal:
        """Deletes the items durably on every shard that owns one, or a part of a large selection.

        Raises BatchSizeOutOfRange, IndexIdInvalid, ItemIdInvalid and RequestIdInvalid before it
        calls any shard; and, once all shards have ended, the error of the first that failed, with
        the outcome of the ids. Never answers for some of the shards only.
        """
        check_alias(asked.index_id)
        check_request_id(asked.request_id)

        async def delete(item_ids: Sequence[str], written: Written) -> None:
            await self._delete(replace(asked, item_ids=item_ids), written, deadline)

        if asked.selection is None:
            check_batch_size("item_ids", len(asked.item_ids), MAX_ITEM_ID_COUNT)
            written = self._selected.begun(asked)
            await delete([*map(check_item_id, dict.fromkeys(asked.item_ids))], written)
        elif asked.item_ids:
            raise RequestMalformed(why="set item_ids or a selection, not both")
        else:
            written = await self._selected.write(asked, MAX_ITEM_ID_COUNT, delete, deadline)
        return Removal(
            written.count,
            written.token(self._writes.shard_map),
            not written.next_page_token,
            tuple(written.item_ids),
            written.next_page_token,
        )

    async def _delete(self, asked: ItemsRemoval, written: Written, deadline: Deadline) -> None:
        owned = self._writes.shard_map.group(asked.index_id, asked.item_ids)
        # A selection that is repeated is another one.
        request_id = "" if asked.selection else asked.request_id
        done, failures, switches = await self._writes.write(
            asked.index_id,
            owned,
            lambda number, index_id, own_id: Delete(index_id, owned[number], own_id),
            request_id,
            deadline,
        )
        written.add(
            sum(each.deleted_count for each in done.values()),
            {number: each.sequence for number, each in done.items()},
            switches,
        )
        if failures:
            raise write_failure(failures, owned, written.count, "removed")

    async def remove_index(self, index_id: str, deadline: Deadline) -> Removal:
        """Removes an index, or a part of a large one, from all shards; repeat until complete.

        Raises IndexIdInvalid, IndexNotFound if no shard has it, and, once all shards have ended,
        the error of the first that failed, with the number of items removed.
        """
        check_index_id(index_id)
        shards = self._writes.shards
        done, failures = await ended(
            {n: each.delete_index(index_id, deadline) for n, each in enumerate(shards)}
        )
        removed_count = sum(each.count for each in done.values())
        if failures:
            first = failures[min(failures)]
            raise error_from_reason(
                first.reason,
                f"{removed_count:,} items are removed, {len(failures)} of {len(shards)} "
                f"shards failed; repeat the call, which is safe: {first.message}",
                first.metadata,
            )
        if not done:
            raise IndexNotFound(index_id=index_id)
        sequences = {number: each.sequence for number, each in done.items()}
        token = make_token(sequences, self._writes.shard_map)
        return Removal(removed_count, token, all(each.is_complete for each in done.values()))

    async def only_generation(self, alias: str, deadline: Deadline) -> str:
        """Returns the index to remove for an alias, and has its next items decide its model.

        Raises IndexIdInvalid, and GenerationRefused if there are several.
        """
        router = self._writes.router
        book = router.book
        await router.route(check_alias(alias), deadline)
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
