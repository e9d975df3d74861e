"""Moves the items of all shards to other shards, and seals the ones that they came from."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tandem.contract.content import Encoding, TextContent, TextTokens
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.errors import IndexNotFound, ModelMismatch
from tandem.remote.move.move_progress import MoveProgress, SourceProgress
from tandem.remote.move.shard_link import ShardLink
from tandem.search.calls.fan_out import fan_out
from tandem.search.shard_map import ShardMap
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import FetchedItems, ItemRecord, ItemsQuery
from tandem.v1 import index_admin_service_pb2 as pb

FENCE_SECONDS = 0.5
_FENCE_COUNT = 100
# Room for writes that wait, between two fences.
_PAUSE_SECONDS = 0.5
_EMPTY_ITEM_ID = "tandem-move"

Show = Callable[[str, int, int], None]


class MoveRefused(ValueError):
    """The shards are not as a move needs them."""


class _LogTrimmed(Exception):
    """A source's change log no longer has what happened since the copy began."""


class Mover:
    """Copies the sources' items to the targets and follows their changes until both are equal.

    It alone writes to the targets. Sources are searched and written as before, except in fences.
    """

    def __init__(
        self, sources: Sequence[ShardLink], targets: Sequence[ShardLink], path: Path, show: Show
    ) -> None:
        """Takes the shards by number, and the file of its progress."""
        self._sources, self._targets = sources, targets
        self._source_map, self._map = ShardMap(len(sources)), ShardMap(len(targets))
        self._path, self._show = path, show
        # Of this process: after a restart, an item may have another state under the same number.
        self._request_prefix, self._request_number = secrets.token_hex(8), 0
        self._copied_count = self._item_count = 0
        self._progress = MoveProgress(path, (), ())

    async def move(self) -> tuple[int, int]:
        """Returns the shard map's version of the sources, sealed now, and of the targets.

        The targets have all items then. Raises MoveRefused where nothing can be moved, and what
        the shards raise.
        """
        versions = await self._meet()
        while not self._progress.is_sealed:
            try:
                await self.copy()
                await self._follow_to_the_end()
                await self._seal()
            except _LogTrimmed as error:
                self._show(f"{error}; the copy begins again", 0, 0)
                await self._begin_again()
        return versions

    async def copy(self) -> None:
        """Copies what is not copied yet; move() does it too."""
        if not self._progress.sources:
            await self._meet()
        held = (await self._summaries(self._sources)).values()
        self._item_count = sum(each.text_count + each.image_count for each in held)
        await fan_out(*map(self._copy, self._sources, self._progress.sources))

    async def _meet(self) -> tuple[int, int]:
        """Checks that these are the right shards, and reads or begins the progress."""
        sources = [await each.changes(0, 1) for each in self._sources]
        targets = [await each.changes(0, 1) for each in self._targets]
        versions = _version(self._sources, sources), _version(self._targets, targets)
        if versions[0] >= versions[1]:
            raise MoveRefused(
                f"the targets' shard map is version {versions[1]}, the sources' {versions[0]}: "
                "start the targets with a higher INDEX_SHARD_MAP_VERSION"
            )
        progress = MoveProgress.read(self._path)
        if progress is not None:
            known = [each.store_id for each in progress.sources], list(progress.target_ids)
            if known != ([each.store_id for each in sources], [each.store_id for each in targets]):
                raise MoveRefused(
                    f"{self._path} is of a move between other stores: name another file, or "
                    "remove it and begin with empty targets"
                )
            self._progress = progress
            return versions
        for index_id, index in (await self._summaries(self._targets)).items():
            raise MoveRefused(
                f"the targets have index {index_id} of model {index.model_fingerprint[:12]}: "
                "a move begins with empty shards"
            )
        begun = [SourceProgress(each.store_id, each.sequence) for each in sources]
        self._progress = MoveProgress(self._path, [each.store_id for each in targets], begun)
        self._progress.save()
        return versions

    async def _begin_again(self) -> None:
        for index_id in await self._summaries(self._targets):
            await fan_out(*(each.drop(index_id) for each in self._targets))
        self._progress.sources = [
            SourceProgress(at.store_id, (await source.changes(at.sequence, 1)).sequence)
            for source, at in zip(self._sources, self._progress.sources, strict=True)
        ]
        self._copied_count = 0
        self._progress.save()

    async def _copy(self, source: ShardLink, at: SourceProgress) -> None:
        while not at.is_copied:
            item_ids = await self._item_ids(source, at.index_id, at.item_id)
            if item_ids:
                # Another model's index has taken its place: all its items are in the change log.
                with suppress(ModelMismatch):
                    await self._bring(source, at.index_id, item_ids)
                at.item_id = item_ids[-1]
                self._copied_count += len(item_ids)
                self._show("copy items", self._copied_count, self._item_count)
            else:
                indexes = await source.again(source.shard.list_indexes, at.index_id, 1, ())
                at.is_copied = not indexes
                at.index_id, at.item_id = (indexes[0].index_id if indexes else ""), ""
            self._progress.save()

    async def _item_ids(self, link: ShardLink, index_id: str, after: str) -> Sequence[str]:
        if not index_id:  # before the first
            return ()
        try:
            return await link.again(link.shard.list_item_ids, index_id, after, MAX_ITEM_ID_COUNT)
        except IndexNotFound:  # dropped meanwhile
            return ()

    async def _follow_to_the_end(self) -> None:
        """Follows all sources until each is less than a page behind."""
        while True:
            before = [at.sequence for at in self._progress.sources]
            behind_count = await self._follow_once()
            self._show("follow changes", 0, behind_count)
            if behind_count <= 0:
                return
            if before == [at.sequence for at in self._progress.sources]:
                raise MoveRefused(
                    "an index has another model on the sources than on the targets, and its "
                    "changes cannot be followed: empty the targets, and begin again"
                )

    async def _follow_once(self) -> int:
        """Brings a page of each source's changes; returns how many changes are left at least."""
        behind_count = 0
        for source, at in zip(self._sources, self._progress.sources, strict=True):
            page = await source.changes(at.sequence, MAX_ITEM_ID_COUNT)
            if page.is_trimmed:
                raise _LogTrimmed(f"{source.address} no longer has its change {at.sequence + 1:,}")
            try:
                await self._bring_changes(source, page.changes)
            except ModelMismatch:
                # Until the other sources' items of the index before are deleted too.
                behind_count += page.sequence - at.sequence
                continue
            if page.changes:
                at.sequence = page.changes[-1].sequence
            behind_count += page.sequence - at.sequence
        self._progress.save()
        return behind_count

    async def _bring_changes(self, source: ShardLink, changes: Sequence[pb.ItemChange]) -> None:
        for index_id in {change.index_id for change in changes if not change.item_id}:
            if index_id in await self._summaries(self._sources):
                await fan_out(*(self._forget(source, each, index_id) for each in self._targets))
            else:
                await fan_out(*(each.drop(index_id) for each in self._targets))
        changed: dict[str, dict[str, None]] = {}
        for change in changes:
            if change.item_id:
                changed.setdefault(change.index_id, {})[change.item_id] = None
        for index_id, item_ids in changed.items():
            await self._bring(source, index_id, list(item_ids))

    async def _forget(self, source: ShardLink, target: ShardLink, index_id: str) -> None:
        """Deletes a source's items of an index that it dropped; later changes bring new ones."""
        after = ""
        while item_ids := await self._item_ids(target, index_id, after):
            owned = self._source_map.group(index_id, item_ids).get(source.number)
            if owned:
                await target.again(target.shard.write, Delete(index_id, owned, self._request_id()))
            after = item_ids[-1]

    async def _bring(self, source: ShardLink, index_id: str, item_ids: Sequence[str]) -> None:
        """Gives the items on the targets the state that they have on the source."""
        while item_ids:
            query = ItemsQuery(index_id, item_ids, encodings_included=True)
            try:
                fetched = await source.again(source.shard.get, query)
            except IndexNotFound:
                fetched = FetchedItems({}, len(item_ids))
            owned = self._map.group(index_id, item_ids[: fetched.read_count])
            await fan_out(
                *(
                    self._write(self._targets[number], index_id, ids, fetched)
                    for number, ids in owned.items()
                )
            )
            item_ids = item_ids[fetched.read_count :]

    async def _write(
        self, target: ShardLink, index_id: str, item_ids: Sequence[str], fetched: FetchedItems
    ) -> None:
        items = [
            ItemRecord(item_id, item.content, item.encoding, item.attributes)
            for item_id in item_ids
            if (item := fetched.items.get(item_id)) and item.content and item.encoding
        ]
        kept = {item.item_id for item in items}
        gone = [item_id for item_id in item_ids if item_id not in kept]
        if gone:
            delete = Delete(index_id, gone, self._request_id())
            with suppress(IndexNotFound):
                await target.again(target.shard.write, delete)
        if items:
            upsert = Upsert(index_id, fetched.fingerprint, items, self._request_id())
            try:
                await target.again(target.shard.write, upsert)
            except ModelMismatch:
                index = (await target.summaries())[index_id]
                if index.text_count + index.image_count:
                    raise
                await target.drop(index_id)
                await target.again(target.shard.write, upsert)

    async def _seal(self) -> None:
        """Seals all sources at a sequence up to which the targets have everything."""
        for number in range(_FENCE_COUNT):
            self._show("fence writes", number, _FENCE_COUNT)
            end_time = time.monotonic() + FENCE_SECONDS
            fences = await fan_out(*(each.fence(FENCE_SECONDS) for each in self._sources))
            try:
                while await self._follow_once() > 0 and time.monotonic() < end_time:
                    pass
                difference = await self._difference()
                if time.monotonic() < end_time:
                    if difference:
                        raise MoveRefused(
                            f"{difference}: something else writes to the targets; empty them, and "
                            "begin again"
                        )
                    seals = await fan_out(
                        *(
                            source.fence(0, fence.sequence)
                            for source, fence in zip(self._sources, fences, strict=True)
                        )
                    )
                    if all(seal.is_sealed for seal in seals):
                        self._progress.is_sealed = True
                        self._progress.save()
                        return
            finally:
                if not self._progress.is_sealed:
                    await fan_out(*(each.fence(0) for each in self._sources))
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._follow_to_the_end()
        raise MoveRefused(
            f"{_FENCE_COUNT} fences of {FENCE_SECONDS} s were too short to bring the last changes: "
            "write less, and repeat the command, which continues"
        )

    async def _difference(self) -> str:
        """Compares models and counts of all indexes; returns where they differ, if they do."""
        held, moved = await self._summaries(self._sources), await self._summaries(self._targets)
        for index_id, index in held.items():
            if index_id not in moved and not index.text_count + index.image_count:
                await self._make_empty(index)
                moved[index_id] = index
        for index_id in sorted(held.keys() | moved.keys()):
            if (here := held.get(index_id)) != (there := moved.get(index_id)):
                return f"index {index_id} is {here} on the sources and {there} on the targets"
        return ""

    async def _make_empty(self, index: IndexSummary) -> None:
        """Makes an index without items, by an item that is deleted at once."""
        for source in self._sources:
            with suppress(IndexNotFound):
                described = await source.again(source.shard.describe_index, index.index_id)
        embedding = np.eye(1, described.embedding_dimension, dtype=np.float32)[0]
        encoding = Encoding(embedding, TextTokens(np.zeros(1, np.int32)))
        item = ItemRecord(_EMPTY_ITEM_ID, TextContent(_EMPTY_ITEM_ID), encoding)
        target = self._targets[0]
        for write in (
            Upsert(index.index_id, index.model_fingerprint, [item]),
            Delete(index.index_id, [_EMPTY_ITEM_ID]),
        ):
            await target.again(target.shard.write, write)

    async def _summaries(self, links: Sequence[ShardLink]) -> dict[str, IndexSummary]:
        """Returns the indexes of all shards together."""
        joined: dict[str, IndexSummary] = {}
        for summaries in await fan_out(*(each.summaries() for each in links)):
            for index_id, index in summaries.items():
                joined[index_id] = joined[index_id] + index if index_id in joined else index
        return joined

    def _request_id(self) -> str:
        self._request_number += 1
        return f"{self._request_prefix}/{self._request_number}"


def _version(links: Sequence[ShardLink], pages: Sequence[pb.ReadChangesResponse]) -> int:
    """Returns the version of the shards' map; raises MoveRefused where they are not all of one."""
    for number, (link, page) in enumerate(zip(links, pages, strict=True)):
        if (page.shard_number, page.shard_count) != (number, len(links)):
            raise MoveRefused(
                f"{link.address} is shard {page.shard_number} of {page.shard_count}, and stands "
                f"where shard {number} of {len(links)} is needed: name all shards, in their order"
            )
    versions = {page.shard_map_version for page in pages}
    if len(versions) > 1:
        raise MoveRefused(f"the shards have several versions of their map: {sorted(versions)}")
    return versions.pop()
