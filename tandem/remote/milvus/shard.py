"""Searches, reads and writes the items of a shard that Milvus stores.

docs/engines.md says what Milvus cannot promise, such as that a search without a token sees the
last writes.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.filters import holds
from tandem.contract.index_description import IndexSummary
from tandem.contract.limits import MAX_PAGE_SIZE
from tandem.contract.search.item_changes import ItemSelection
from tandem.contract.search_path import KeywordState
from tandem.errors import IndexNotFound, SequenceNotReached
from tandem.local.shard.metrics import STAGE_DURATION
from tandem.remote.engine_shard import EngineShard
from tandem.remote.index_engine import EngineSettings
from tandem.remote.milvus.collections import (
    INDEX_TYPE,
    IndexCollection,
    any_of_ids,
    attributes_of,
)
from tandem.remote.milvus.connection import as_of
from tandem.remote.milvus.engine_url import collections_of
from tandem.remote.milvus.search import CollectionSearch
from tandem.remote.milvus.typed_fields import literal
from tandem.remote.milvus.writes import Writes
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Fence, ShardWrite
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemsQuery
from tandem.stages.notes import Note, PutNote, SetWriter
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import check_ids_page, check_indexes_page
from tandem.stages.shard_answer import KeywordFound, ShardAnswer

# Each answer says how many items there are; counting them takes as long as a search.
_COUNTED_SECONDS = 1.0


class MilvusShard(EngineShard):
    """A shard of any number of services, none of which has a state."""

    index_type = INDEX_TYPE

    def __init__(self, settings: EngineSettings) -> None:
        """Raises SettingsError for a URL or a namespace that Milvus cannot have."""
        self._collections, self._tokens_honoured = collections_of(settings)
        self._connection = self._collections.connection
        self._writes = Writes(self._collections)
        self._followed = self._writes.followed
        self._counted: dict[str, tuple[float, Mapping[Modality, int]]] = {}

    async def open(self) -> None:
        """Connects to Milvus and to the object store."""
        await self._connection.check()
        await self._writes.notes.open()

    async def check(self) -> None:
        """Raises ServiceUnavailable while Milvus does not answer."""
        await self._connection.check()

    async def close(self) -> None:
        """Closes the connection."""
        await self._writes.notes.close()
        await self._connection.close()

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""
        start_time = time.perf_counter()
        collection = await self._collections.get(query.index_id, deadline)
        collection.check(query.fingerprint, query.embeddings)
        if query.minimum_sequence and not self._tokens_honoured:
            raise SequenceNotReached(
                minimum=query.minimum_sequence,
                applied=0,
                advice="search without a token, or have the operator add tokens=on to the "
                "engine's URL, which costs each such search about 200 ms",
            )
        with STAGE_DURATION.labels("search").time():
            found = await CollectionSearch(collection, query, deadline).found()
            counts = await self._lately_counted(collection, query.minimum_sequence, deadline)
        return ShardAnswer(
            found,
            query.minimum_sequence,
            counts[query.modality],
            KeywordFound(KeywordState.DISABLED) if query.keywords else None,
            time.perf_counter() - start_time,
        )

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items of the query, as many as are read at once."""
        with STAGE_DURATION.labels("read").time():
            collection = await self._collections.get(query.index_id, deadline)
            fields = ["version", "size_bytes", "attributes"]
            is_bare = not (query.content_included or query.encodings_included)
            seen = None if is_bare else await self._followed.seen(collection)
            found = await collection.query(any_of_ids(query.item_ids), fields, deadline, seen)
            rows = {row["item_id"]: row for row in found}
            read = query.first_within({each: row["size_bytes"] for each, row in rows.items()})
            there = [each for each in read if each in rows]
            if is_bare:
                bare = {each: FetchedItem(None, attributes_of(rows[each])) for each in there}
                return FetchedItems(bare, len(read))
            versions = {each: rows[each]["version"] for each in there}
            records = await collection.records(versions, deadline)
        return FetchedItems(
            {record.item_id: query.fetched(record.item()) for record in records},
            len(read),
            collection.fingerprint if query.encodings_included else "",
        )

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Stores or deletes the items."""
        if isinstance(write, PutNote | SetWriter):
            async with deadline.kept("keeping a note"):
                return await self._followed.keep(write, deadline)
        with STAGE_DURATION.labels("commit").time():
            async with deadline.kept(f"the call of {type(write).__name__}Items"):
                return await self._writes.committed(write, deadline)

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index at once, and its records minutes later."""
        return await self._writes.dropped(index_id, deadline)

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns the notes whose keys begin so, by key."""
        async with deadline.kept("the call of ReadNotes"):
            return await self._followed.notes(prefix)

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        """Returns writes after a sequence, whole; they are noted from the first such call on."""
        async with deadline.kept("the call of ReadChanges"):
            return await self._followed.page(after_sequence, max_count, deadline)

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        """Begins, seals or ends a fence, for every index_svc of the engine."""
        async with deadline.kept("the call of FenceWrites"):
            return await self._followed.fence(fence, deadline)

    async def list_item_ids(
        self,
        index_id: str,
        after: str,
        max_count: int,
        deadline: Deadline,
        selection: ItemSelection | None = None,
    ) -> Sequence[str]:
        """Returns ids after that one; Milvus returns rows in the order of their ids."""
        check_ids_page(index_id, after, max_count)
        collection = await self._collections.get(index_id, deadline)
        seen, chosen = await self._followed.seen(collection), selection or ItemSelection()
        tree = None if chosen.filter is None else chosen.filter.tree
        fields, ids = ["item_id", *(["attributes"] if tree is not None else [])], list[str]()
        while len(ids) < max_count:
            where = f"item_id > {literal(after)}"
            if after < chosen.prefix:
                where = f"item_id >= {literal(chosen.prefix)}"
            found = await collection.query(where, fields, deadline, seen, MAX_PAGE_SIZE)
            page = {each["item_id"]: each for each in found}
            ids += [
                item_id
                for item_id, row in page.items()
                if chosen.has_id(item_id) and (tree is None or holds(tree, attributes_of(row)))
            ]
            after = max(page, default="")
            if len(page) < MAX_PAGE_SIZE or not after.startswith(chosen.prefix):
                break
        return sorted(ids)[:max_count]

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id."""
        check_indexes_page(max_count, index_ids)
        there = await self._collections.index_ids(deadline)
        asked = [each for each in there if each > after and each in (index_ids or there)]
        found = await asyncio.gather(*(self._summary(each, deadline) for each in asked[:max_count]))
        return [each for each in found if each is not None]

    async def _summary(self, index_id: str, deadline: Deadline) -> IndexSummary | None:
        try:
            info, counts = await self._index(index_id, deadline)
        except IndexNotFound:
            return None  # dropped since the indexes were listed
        return IndexSummary(
            index_id, info.fingerprint, counts[Modality.TEXT], counts[Modality.IMAGE]
        )

    async def _index(
        self, index_id: str, deadline: Deadline
    ) -> tuple[IndexCollection, Mapping[Modality, int]]:
        collection = await self._collections.get(index_id, deadline)
        return collection, await collection.counts(deadline, await self._followed.seen(collection))

    async def _lately_counted(
        self, collection: IndexCollection, sequence: int, deadline: Deadline
    ) -> Mapping[Modality, int]:
        counted_time, counts = self._counted.get(collection.name, (0.0, {}))
        if not counts or sequence or time.monotonic() - counted_time > _COUNTED_SECONDS:
            # First, so that of many searches one counts.
            self._counted[collection.name] = time.monotonic(), counts
            counts = await collection.counts(deadline, as_of(sequence))
            self._counted[collection.name] = time.monotonic(), counts
        return counts
