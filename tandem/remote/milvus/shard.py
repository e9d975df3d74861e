"""Searches, reads and writes the items of a shard that Milvus stores.

docs/engines.md says what Milvus cannot promise: a search without a token may miss the last writes,
and a batch that dies half-way may be stored in part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id
from tandem.contract.index_description import IndexSummary
from tandem.contract.search_path import KeywordState
from tandem.errors import IndexNotFound, SequenceNotReached
from tandem.local.shard.metrics import STAGE_DURATION
from tandem.remote.engine_shard import EngineShard
from tandem.remote.milvus.collections import INDEX_TYPE, Collections, IndexCollection
from tandem.remote.milvus.connection import ALL_WRITES, Consistency, MilvusConnection, as_of
from tandem.remote.milvus.expressions import quoted
from tandem.remote.milvus.item_objects import ItemObjects, RequestObjects
from tandem.remote.milvus.rows import Rows
from tandem.remote.milvus.search import CollectionSearch, of_modality
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Delete, Upsert
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemsQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import check_ids_page, check_indexes_page
from tandem.stages.shard_answer import KeywordFound, ShardAnswer

# Each answer says how many items there are; counting them takes as long as a search.
_COUNTED_SECONDS = 1.0


class MilvusShard(EngineShard):
    """A shard of any number of services, none of which has a state."""

    index_type = INDEX_TYPE

    def __init__(
        self,
        connection: MilvusConnection,
        collections: Collections,
        objects: ItemObjects,
        requests: RequestObjects,
        *,
        tokens_honoured: bool = False,
    ) -> None:
        """Waits for the writes of a consistency token only if `tokens_honoured`."""
        self._connection = connection
        self._collections = collections
        self._objects = objects
        self._requests = requests
        self._rows = Rows(connection, objects)
        self._tokens_honoured = tokens_honoured
        self._counted: dict[str, tuple[float, Mapping[Modality, int]]] = {}
        self._deleting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connects to Milvus and to the object store."""
        await self._connection.check()
        await self._objects.get(["opened"])

    async def check(self) -> None:
        """Raises ServiceUnavailable while Milvus does not answer."""
        await self._connection.check()

    async def close(self) -> None:
        """Closes the connection; records of a dropped index that are left stay behind."""
        for task in self._deleting:
            task.cancel()
        await asyncio.gather(*self._deleting, return_exceptions=True)
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
            found, counts = await asyncio.gather(
                CollectionSearch(self._connection, collection, query, deadline).found(),
                self._lately_counted(collection, query.minimum_sequence, deadline),
            )
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
            return await self._fetched(query, deadline)

    async def write(self, write: Upsert | Delete, deadline: Deadline) -> Committed:
        """Stores or deletes the items."""
        what = f"the call of {type(write).__name__}Items"
        with STAGE_DURATION.labels("commit").time():
            async with deadline.kept(what):
                if (answer := await self._requests.answer(write)) is None:
                    answer = await self._committed(write, deadline)
                    await self._requests.keep(write, answer)
                return answer

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        """Deletes the index at once, and its records in the background."""
        collection = await self._collections.get(check_index_id(index_id), deadline, is_fresh=True)
        counts = await self._counts(collection, ALL_WRITES, deadline)
        await self._collections.drop(collection, deadline)
        task = asyncio.create_task(self._objects.delete_folder(collection.folder))
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)
        sequence = await self._connection.note_write(collection.name, deadline)
        return Deleted(sum(counts.values()), sequence)

    async def list_item_ids(
        self, index_id: str, after: str, max_count: int, deadline: Deadline
    ) -> Sequence[str]:
        """Returns ids after that one; Milvus returns rows in the order of their ids."""
        check_ids_page(index_id, after, max_count)
        collection = await self._collections.get(index_id, deadline)
        found = await self._connection.call(
            "query",
            collection.name,
            filter=f"item_id > {quoted(after)}",
            output_fields=["item_id"],
            limit=max_count,
            deadline=deadline,
            **as_of(self._connection.written(collection.name)),
        )
        return sorted((each["item_id"] for each in found), key=str.encode)

    async def _index(
        self, index_id: str, deadline: Deadline
    ) -> tuple[IndexInfo, Mapping[Modality, int]]:
        collection = await self._collections.get(index_id, deadline)
        seen = as_of(self._connection.written(collection.name))
        return collection, await self._counts(collection, seen, deadline)

    async def list_indexes(
        self, after: str, max_count: int, index_ids: Sequence[str], deadline: Deadline
    ) -> Sequence[IndexSummary]:
        """Returns the indexes after that id."""
        check_indexes_page(max_count, index_ids)
        there = await self._collections.index_ids(deadline)
        asked = [each for each in there if each > after and each in (index_ids or there)]
        found = await asyncio.gather(*(self._summary(each, deadline) for each in asked[:max_count]))
        return [each for each in found if each is not None]

    async def _committed(self, write: Upsert | Delete, deadline: Deadline) -> Committed:
        deleted_count = 0
        if isinstance(write, Upsert):
            collection = await self._collections.made_for(write, deadline)
            await self._rows.write(collection, write.items, deadline)
        else:
            collection = await self._collections.get(write.index_id, deadline, is_fresh=True)
            deleted_count = await self._rows.delete(collection, write.item_ids, deadline)
        sequence = await self._connection.note_write(collection.name, deadline)
        return Committed(sequence, deleted_count)

    async def _fetched(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        collection = await self._collections.get(query.index_id, deadline)
        found = await self._rows.read(
            collection, query.item_ids, deadline, attributes_included=True
        )
        read = query.first_within({each: row.size_bytes for each, row in found.items()})
        rows = {each: found[each] for each in read if each in found}
        if not (query.content_included or query.encodings_included):
            bare = {each: FetchedItem(None, row.attributes) for each, row in rows.items()}
            return FetchedItems(bare, len(read))
        records = await self._rows.records(collection, rows, deadline)
        items = [records[each][1].item() for each in rows if each in records]
        return FetchedItems(
            {item.item_id: query.fetched(item) for item in items},
            len(read),
            collection.fingerprint if query.encodings_included else "",
        )

    async def _summary(self, index_id: str, deadline: Deadline) -> IndexSummary | None:
        try:
            info, counts = await self._index(index_id, deadline)
        except IndexNotFound:
            return None  # dropped since the indexes were listed
        return IndexSummary(
            index_id, info.fingerprint, counts[Modality.TEXT], counts[Modality.IMAGE]
        )

    async def _lately_counted(
        self, collection: IndexCollection, sequence: int, deadline: Deadline
    ) -> Mapping[Modality, int]:
        counted_time, counts = self._counted.get(collection.name, (0.0, {}))
        if not counts or sequence or time.monotonic() - counted_time > _COUNTED_SECONDS:
            # First, so that of many searches one counts.
            self._counted[collection.name] = time.monotonic(), counts
            counts = await self._counts(collection, as_of(sequence), deadline)
            self._counted[collection.name] = time.monotonic(), counts
        return counts

    async def _counts(
        self, collection: IndexCollection, seen: Consistency, deadline: Deadline
    ) -> Mapping[Modality, int]:
        counts = await asyncio.gather(
            *(
                self._connection.count(collection.name, of_modality(each), deadline, seen)
                for each in Modality
            )
        )
        return dict(zip(Modality, counts, strict=True))
