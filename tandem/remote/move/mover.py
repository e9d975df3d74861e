"""Moves the items of all shards to other shards, and seals the ones that they came from."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from tandem.contract.content import Encoding, TextContent, TextTokens
from tandem.contract.generation_ids import alias_of
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.errors import IndexNotFound, ModelMismatch
from tandem.remote.move.move_files import (
    MoveProgress,
    SourceProgress,
    read_move_file,
    write_move_file,
)
from tandem.remote.move.shard_link import ShardLink
from tandem.search.calls.fan_out import fan_out
from tandem.search.shard_map import ShardMap
from tandem.stages.item_write import Delete, Upsert
from tandem.stages.items import FetchedItems, ItemRecord, ItemsQuery
from tandem.stages.notes import WRITER_PREFIX, Note, PutNote, SetWriter, WriterRule
from tandem.v1 import index_admin_service_pb2 as pb

# One after the other; writes wait meanwhile.
_FENCE_SECONDS = (0.5, 1.0, 2.0, 4.0, *(8.0,) * 6)
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
        self._map = ShardMap(len(targets))
        self._path, self._show = path, show
        # Of this process: after a restart, an item may have another state under the same number.
        self._request_prefix, self._request_number = secrets.token_hex(8), 0
        self._copied_count = self._item_count = 0
        self._progress = MoveProgress()

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
                for index_id in await self._summaries(self._targets):
                    await self._drop(index_id)
                await self._begin()
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
        _check_generations(await self._summaries(self._sources))
        sources = [await each.changes(0, 1) for each in self._sources]
        targets = [await each.changes(0, 1) for each in self._targets]
        versions = _version(self._sources, sources), _version(self._targets, targets)
        if versions[0] >= versions[1]:
            raise MoveRefused(
                f"the targets' shard map is version {versions[1]}, the sources' {versions[0]}: "
                "start the targets with a higher INDEX_SHARD_MAP_VERSION"
            )
        source_ids, target_ids = [tuple(at.store_id for at in each) for each in (sources, targets)]
        if progress := read_move_file(self._path, MoveProgress):
            if (tuple(at.store_id for at in progress.sources), progress.target_ids) != (
                source_ids,
                target_ids,
            ):
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
        self._progress = MoveProgress(target_ids)
        await self._begin()
        return versions

    async def _begin(self) -> None:
        """Has the copy begin, with everything to follow that happens from now on."""
        logs = [
            await each.changes((await each.changes(0, 1)).sequence, 1) for each in self._sources
        ]
        self._progress.sources = tuple(SourceProgress(at.store_id, at.sequence) for at in logs)
        self._copied_count = 0
        self._save()

    def _save(self) -> None:
        write_move_file(self._path, self._progress, mode=0o600)

    async def _copy(self, source: ShardLink, at: SourceProgress) -> None:
        while not at.is_copied:
            item_ids = await self._item_ids(source, at.index_id, at.item_id)
            if item_ids:
                await self._bring(source, at.index_id, item_ids)
                at.item_id = item_ids[-1]
                self._copied_count += len(item_ids)
                self._show("copy items", self._copied_count, self._item_count)
            else:
                indexes = await source.again(source.shard.list_indexes, at.index_id, 1, ())
                at.is_copied = not indexes
                at.index_id, at.item_id = (indexes[0].index_id if indexes else ""), ""
            self._save()

    async def _item_ids(self, link: ShardLink, index_id: str, after: str) -> Sequence[str]:
        if not index_id:  # before the first
            return ()
        try:
            return await link.again(link.shard.list_item_ids, index_id, after, MAX_ITEM_ID_COUNT)
        except IndexNotFound:  # dropped meanwhile
            return ()

    async def _follow_to_the_end(self) -> None:
        """Follows all sources until each has no change that is not brought."""
        while not await self._follow_once():
            self._show("follow changes", 0, 0)

    async def _follow_once(self) -> bool:
        """Brings a page of each source's changes; returns whether there are no more."""
        is_even = True
        for source, at in zip(self._sources, self._progress.sources, strict=True):
            page = await source.changes(at.sequence, MAX_ITEM_ID_COUNT)
            if page.is_trimmed:
                raise _LogTrimmed(f"{source.address} no longer has its change {at.sequence + 1:,}")
            for index_id in {each.index_id for each in page.changes if not each.item_id}:
                await self._replace(index_id)
            changed: dict[str, dict[str, None]] = {}
            for each in page.changes:
                if each.item_id:
                    changed.setdefault(each.index_id, {})[each.item_id] = None
            for index_id, item_ids in changed.items():
                await self._bring(source, index_id, list(item_ids))
            if page.changes:
                at.sequence = page.changes[-1].sequence
            is_even = is_even and at.sequence == page.sequence
        self._save()
        return is_even

    async def _replace(self, index_id: str) -> None:
        """Copies an index again that a source dropped; it may have another model now."""
        await self._drop(index_id)
        for source in self._sources:
            after = ""
            while item_ids := await self._item_ids(source, index_id, after):
                await self._bring(source, index_id, item_ids)
                after = item_ids[-1]

    async def _drop(self, index_id: str) -> None:
        await fan_out(*(each.drop(index_id) for each in self._targets))

    async def _bring(self, source: ShardLink, index_id: str, item_ids: Sequence[str]) -> None:
        """Gives the items on the targets the state that they have on the source."""
        while item_ids:
            asked = item_ids[:MAX_ITEM_ID_COUNT]
            try:
                query = ItemsQuery(index_id, asked, encodings_included=True)
                fetched = await source.again(source.shard.get, query)
            except IndexNotFound:
                fetched = FetchedItems({}, len(asked))
            owned = self._map.group(index_id, asked[: fetched.read_count])
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
        if gone := [item_id for item_id in item_ids if item_id not in kept]:
            delete = Delete(index_id, gone, self._request_id())
            with suppress(IndexNotFound):
                await target.again(target.shard.write, delete)
        if items:
            upsert = Upsert(index_id, fetched.fingerprint, items, self._request_id())
            # Not all sources have dropped the index yet: where the last one did, all is replaced.
            with suppress(ModelMismatch):
                await target.again(target.shard.write, upsert)

    async def _seal(self) -> None:
        """Seals all sources at a sequence up to which the targets have everything."""
        last = ""
        for number, seconds in enumerate(_FENCE_SECONDS):
            self._show("fence writes", number, len(_FENCE_SECONDS))
            difference = await self._difference_in_fence(seconds)
            if self._progress.is_sealed:
                return
            if difference and difference == last:
                raise MoveRefused(
                    f"{difference}: something else writes to the targets, or an index has two "
                    "models on the sources; empty the targets, and begin again"
                )
            last = difference
            await asyncio.sleep(_PAUSE_SECONDS)
            await self._follow_to_the_end()
        raise MoveRefused(
            f"{len(_FENCE_SECONDS)} fences of up to {_FENCE_SECONDS[-1]} s were too short to bring "
            "the last changes: write less, and repeat the command, which continues"
        )

    async def _difference_in_fence(self, seconds: float) -> str:
        """Seals the sources in a fence; returns where both sides differ until its end, if so."""
        end_time = time.monotonic() + seconds
        fences = await fan_out(*(each.fence(seconds) for each in self._sources))
        difference = ""
        try:
            while time.monotonic() < end_time:
                # A write that began before the fence may end in it.
                if await self._follow_once() and not (difference := await self._difference()):
                    await self._carry_notes()
                    seals = (
                        source.fence(0, fence.sequence)
                        for source, fence in zip(self._sources, fences, strict=True)
                    )
                    self._progress.is_sealed = all(seal.is_sealed for seal in await fan_out(*seals))
                    break
        finally:
            if not self._progress.is_sealed:
                await fan_out(*(each.fence(0) for each in self._sources))
        self._save()
        return difference

    async def _difference(self) -> str:
        """Compares models and counts of all indexes; returns where they differ, if they do."""
        held, moved = await self._summaries(self._sources), await self._summaries(self._targets)
        _check_generations(held)
        for index_id, index in held.items():
            if index_id not in moved and not index.text_count + index.image_count:
                await self._make_empty(index)
                moved[index_id] = index
        for index_id in sorted(held.keys() | moved.keys()):
            if (here := held.get(index_id)) != (there := moved.get(index_id)):
                return f"index {index_id} is {here} on the sources and {there} on the targets"
        return ""

    async def _carry_notes(self) -> None:
        """Gives the first target the notes of the first source, and all targets who may write."""
        source, target = self._sources[0], self._targets[0]
        kept = {note.key: note for note in await target.again(target.shard.notes, "")}
        for note in await source.again(source.shard.notes, ""):
            old = kept.get(note.key, Note(note.key, "", 0))
            if note.key.startswith(WRITER_PREFIX):
                # Without its progress, which is a place in the source's log.
                rule, index_id = WriterRule.of(note), note.key.removeprefix(WRITER_PREFIX)
                write = SetWriter(index_id, rule.term, rule.is_open)
                await fan_out(*(each.again(each.shard.write, write) for each in self._targets))
            elif note.value != old.value:
                put = PutNote(note.key, note.value, old.revision)
                await target.again(target.shard.write, put)

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


def _check_generations(held: Iterable[str]) -> None:
    """Raises MoveRefused where a follower writes one generation of an index from another."""
    for alias, number in Counter(map(alias_of, held)).items():
        if number > 1:
            raise MoveRefused(
                f"index {alias} has {number} generations on the sources: drop all but the one "
                "that serves, and repeat the command"
            )


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
