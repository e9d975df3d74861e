"""Changes attributes of items and copies items, each on the shard that owns it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attributes import check_attributes
from tandem.contract.identifiers import check_item_id, check_request_id
from tandem.contract.limits import (
    MAX_ITEM_ID_COUNT,
    MAX_PATCH_COUNT,
    check_batch_size,
)
from tandem.contract.search.item_changes import Changes, ItemFailure, ItemPatch, ItemsChange
from tandem.errors import (
    AttributeInvalid,
    IndexNotFound,
    ItemNotFound,
    ModelMismatch,
    RequestMalformed,
    TandemError,
    WriterRefused,
    error_from_reason,
)
from tandem.search.calls.fan_out import fan_out
from tandem.search.indexes.router import check_alias
from tandem.search.writes.selected import SelectedItems, Written
from tandem.search.writes.shard_writes import ShardWrites, write_failure
from tandem.search.writes.write_id import refused_by_name, shard_request_id
from tandem.stages.item_write import Patch, Upsert
from tandem.stages.items import FetchedItems, ItemRecord, ItemsQuery

# Items that are copied are held with their contents.
_COPY_BYTES = 8 * 2**20
_COPY_COUNT = 4


class Changer:
    """Changes stored items without encoding any."""

    def __init__(self, writes: ShardWrites, selected: SelectedItems) -> None:
        self._writes = writes
        self._selected = selected
        self._copy_turns = asyncio.Semaphore(_COPY_COUNT)

    async def change(self, asked: ItemsChange, deadline: Deadline) -> Changes:
        """Changes items durably on every shard that owns one, or a part of a large selection.

        Items that cannot be changed are failures. Raises as `Remover.remove` does, and
        IndexNotFound.
        """
        check_alias(asked.index_id)
        check_request_id(asked.request_id)
        check_batch_size("patches", len(asked.patches), MAX_PATCH_COUNT)
        failures: list[ItemFailure] = []
        if asked.selection is not None:
            patch = _patch_of_selection(asked.patches)

            async def patch_each(item_ids: Sequence[str], written: Written) -> None:
                # A selection that is repeated is another one.
                each = replace(asked, request_id="")
                patches = [replace(patch, item_id=item_id) for item_id in item_ids]
                failures.extend(await self._patch(each, patches, written, deadline))

            written = await self._selected.write(asked, MAX_PATCH_COUNT, patch_each, deadline)
        else:
            written = self._selected.begun(asked)
            good: list[ItemPatch] = []
            for each in asked.patches:
                checked = _checked(each)
                if isinstance(checked, ItemFailure):
                    failures.append(checked)
                else:
                    good.append(checked)
            copies = {each.item_id: each for each in good if each.copied_from_item_id}
            failures += await self._copy(asked, copies, written, deadline)
            rest = [each for each in good if not each.copied_from_item_id]
            failures += await self._patch(asked, rest, written, deadline)
        return Changes(
            written.count,
            written.token(self._writes.shard_map),
            failures,
            written.item_ids,
            written.next_page_token,
        )

    async def _patch(
        self, asked: ItemsChange, patches: Sequence[ItemPatch], written: Written, deadline: Deadline
    ) -> Sequence[ItemFailure]:
        """Changes attributes; returns the items that cannot be changed."""
        if not patches:
            return ()
        of: dict[int, list[ItemPatch]] = {}
        for each in patches:
            number = self._writes.shard_map.owner(asked.index_id, each.item_id)
            of.setdefault(number, []).append(each)
        done, failures, switches = await self._writes.write(
            asked.index_id,
            of,
            lambda number, index_id, own_id: Patch(index_id, of[number], own_id),
            asked.request_id,
            deadline,
        )
        owned = {n: list(dict.fromkeys(each.item_id for each in own)) for n, own in of.items()}
        refused: list[ItemFailure] = []
        for number, item_ids in owned.items():
            if (committed := done.get(number)) is not None:
                count = len(item_ids) - len(committed.failures)
                written.add(count, {number: committed.sequence}, switches)
                refused += [_failure(*each) for each in committed.failures.items()]
            elif number not in failures:
                refused += [_failure(item_id) for item_id in item_ids]
        if failures:
            raise write_failure(failures, owned, written.count, "changed")
        if not done:
            raise IndexNotFound(index_id=asked.index_id)
        return refused

    async def _copy(
        self,
        asked: ItemsChange,
        copies: Mapping[str, ItemPatch],
        written: Written,
        deadline: Deadline,
    ) -> Sequence[ItemFailure]:
        """Copies items, read as they are now, a part at a time; returns those that cannot be."""
        refused: list[ItemFailure] = []
        waiting = list(copies.values())
        while waiting:
            # One copy of each source at a time, so that what is held is bounded.
            target_of = {each.copied_from_item_id: each for each in waiting}
            waiting = [e for e in waiting if target_of[e.copied_from_item_id] is not e]
            for number, left in self._writes.shard_map.group(asked.index_id, target_of).items():
                while left:
                    async with self._copy_turns:
                        read_count, failed = await self._copy_part(
                            asked, number, left, target_of, written, deadline
                        )
                    refused += failed
                    del left[:read_count]
        return refused

    async def _copy_part(
        self,
        asked: ItemsChange,
        number: int,
        sources: Sequence[str],
        target_of: Mapping[str, ItemPatch],
        written: Written,
        deadline: Deadline,
    ) -> tuple[int, Sequence[ItemFailure]]:
        """Copies the first items of a shard; returns how many it read, and what it cannot copy."""
        route = await self._writes.router.route(asked.index_id, deadline)
        while True:
            query = ItemsQuery(
                route.index_id,
                sources[:MAX_ITEM_ID_COUNT],
                encodings_included=True,
                max_bytes=_COPY_BYTES,
            )
            try:
                part = await self._writes.shards[number].get(query, deadline)
            except IndexNotFound:
                part = FetchedItems({}, len(query.item_ids))
            patches = [target_of[each] for each in query.item_ids[: part.read_count]]
            records, refused = _copies(patches, part)
            try:
                sequences = await self._store(asked, route.index_id, records, part, deadline)
            except (WriterRefused, ModelMismatch) as error:
                route = await self._writes.router.again(error, route, deadline)
                continue
            written.add(len(records), sequences, {asked.index_id: route.record.switch_count})
            return part.read_count, refused

    async def _store(
        self,
        asked: ItemsChange,
        index_id: str,
        records: Sequence[ItemRecord],
        part: FetchedItems,
        deadline: Deadline,
    ) -> Mapping[int, int]:
        """Stores copies on the shards that own them; returns the sequences."""
        sequences: dict[int, int] = {}

        async def store(number: int, own: Sequence[ItemRecord]) -> None:
            # Not by their number: how many a read returns depends on their sizes.
            name = "/".join([asked.request_id, *(each.item_id for each in own)])
            own_id = shard_request_id(
                name if asked.request_id else "", number, self._writes.shard_map
            )
            write = Upsert(index_id, part.fingerprint, own, own_id)
            with refused_by_name(asked.request_id):
                committed = await self._writes.shards[number].write(write, deadline)
            sequences[number] = committed.sequence

        of: dict[int, list[ItemRecord]] = {}
        for each in records:
            number = self._writes.shard_map.owner(asked.index_id, each.item_id)
            of.setdefault(number, []).append(each)
        await fan_out(*(store(*each) for each in of.items()))
        return sequences


def _patch_of_selection(patches: Sequence[ItemPatch | ItemFailure]) -> ItemPatch:
    """Returns the only patch; raises its error, and RequestMalformed for more or of one item."""
    [patch, *others] = patches
    if isinstance(patch, ItemFailure):
        raise patch.error
    if others or patch.item_id or patch.copied_from_item_id:
        why = "a selection takes one patch, without item_id and copied_from_item_id"
        raise RequestMalformed(why=why)
    check_attributes(patch.attributes)
    return patch


def _checked(patch: ItemPatch | ItemFailure) -> ItemPatch | ItemFailure:
    """Returns the patch, or why it cannot be applied to any item."""
    if isinstance(patch, ItemFailure):
        return patch
    try:
        check_item_id(patch.item_id)
        check_attributes(patch.attributes)
        if patch.copied_from_item_id:
            check_item_id(patch.copied_from_item_id)
    except TandemError as error:
        return ItemFailure(patch.item_id, error.kept())
    return patch


def _copies(
    patches: Sequence[ItemPatch], part: FetchedItems
) -> tuple[Sequence[ItemRecord], Sequence[ItemFailure]]:
    """Returns the copies of what was read, and what cannot be copied."""
    records, refused = [], []
    for patch in patches:
        item = part.items.get(patch.copied_from_item_id)
        if item is None or item.content is None or item.encoding is None:
            refused.append(_failure(patch.item_id, missing_id=patch.copied_from_item_id))
            continue
        try:
            attributes = patch.patched(item.attributes)
        except TandemError as error:
            refused.append(ItemFailure(patch.item_id, error.kept()))
            continue
        records.append(ItemRecord(patch.item_id, item.content, item.encoding, attributes))
    return records, refused


def _failure(item_id: str, why: str = "", missing_id: str = "") -> ItemFailure:
    error: TandemError = ItemNotFound(item_id=missing_id or item_id)
    return ItemFailure(
        item_id, error_from_reason(AttributeInvalid.reason, why, {}) if why else error
    )
