"""Stores and deletes items: Milvus takes all rows of a write in one call, and shows them at once.

Records are stored before the rows that name them, and notes before the records.
"""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.identifiers import check_index_id
from tandem.contract.search.item_changes import patched
from tandem.errors import AttributeInvalid
from tandem.local.item_store.item_record import attributes_json, item_key, item_version, pack_item
from tandem.local.item_store.request_log import kept_answer, repeated
from tandem.remote.milvus.collections import (
    MODALITY_NUMBERS,
    Collections,
    IndexCollection,
    any_of_ids,
    record_key,
)
from tandem.remote.milvus.connection import ALL_WRITES, LATELY
from tandem.remote.milvus.followed_writes import FollowedWrites
from tandem.remote.milvus.notes import Notes
from tandem.stages.item_write import Committed, ItemsWrite, Patch, Upsert
from tandem.stages.items import Deleted, ItemRecord

_MAX_ATTRIBUTES_BYTES = 65_536


class Writes:
    """Writes items of one namespace."""

    def __init__(self, collections: Collections) -> None:
        self._collections = collections
        self._connection = collections.connection
        self._objects = collections.objects
        self._answers = f"{collections.namespace}-requests"
        self.notes = Notes(collections)
        self.followed = FollowedWrites(collections)

    async def committed(self, write: ItemsWrite, deadline: Deadline) -> Committed:
        """Does the write, unless its request id has an answer; raises what `Shard.write` raises.

        An answer is kept after its write: where a service dies between them, the write is done
        again with the same outcome.
        """
        if not write.request_id:
            return await self._written(write, deadline)
        name = hashlib.blake2b(write.request_id.encode(), digest_size=16).hexdigest()
        key = f"{self._answers}/{name}"
        [kept] = await self._objects.get([key])
        if kept is not None:
            return repeated(write, *json.loads(kept))
        committed = await self._written(write, deadline)
        await self._objects.put([(key, json.dumps(kept_answer(write, committed)).encode())])
        return committed

    async def dropped(self, index_id: str, deadline: Deadline) -> Deleted:
        """Drops the index; its records are deleted minutes later."""
        collection = await self._collections.get(check_index_id(index_id), deadline, is_fresh=True)
        counts = await collection.counts(deadline, ALL_WRITES)
        await self.followed.check(None, deadline)
        await self.notes.leave(collection, [], None, deadline)
        await self._collections.drop(collection, deadline)
        sequence = await self._connection.note_write(collection.name, deadline)
        await self.followed.note(index_id, [""], sequence, deadline)
        return Deleted(sum(counts.values()), sequence)

    async def _written(self, write: ItemsWrite, deadline: Deadline) -> Committed:
        deleted_count, failures = 0, dict[str, str]()
        revision = await self.followed.check(write, deadline)
        if isinstance(write, Upsert):
            item_ids: Sequence[str] = [item.item_id for item in write.items]
            collection = await self._collections.made_for(write, deadline)
            await self._upsert(collection, write.items, deadline)
        elif isinstance(write, Patch):
            item_ids = list(write.by_item)
            collection = await self._collections.get(write.index_id, deadline, is_fresh=True)
            failures = await self._patch(collection, write, deadline)
        else:
            item_ids = write.item_ids
            collection = await self._collections.get(write.index_id, deadline, is_fresh=True)
            old = await collection.versions(write.item_ids, deadline)
            await self.notes.leave(collection, write.item_ids, [*old.values()], deadline)
            where = any_of_ids(write.item_ids)
            await self._connection.delete(collection.name, where, deadline)
            deleted_count = len(old)
        sequence = await self._connection.note_write(collection.name, deadline)
        await self.followed.note_write(write, item_ids, sequence, revision, deadline)
        return Committed(sequence, deleted_count, failures=failures)

    async def _patch(
        self, collection: IndexCollection, write: Patch, deadline: Deadline
    ) -> dict[str, str]:
        """Writes items again with other attributes; returns why others cannot be.

        Milvus locks no rows: where another write of an item came between, all are read again.
        """
        patches_of = write.by_item
        while True:
            versions = await collection.versions(list(patches_of), deadline)
            failures = {item_id: "" for item_id in patches_of if item_id not in versions}
            items = []
            for record in await collection.records(versions, deadline):
                try:
                    attributes = patched(patches_of[record.item_id], record.attributes())
                    _typed(collection, attributes)
                except AttributeInvalid as error:
                    failures[record.item_id] = error.message
                else:
                    items.append(replace(record.item(), attributes=attributes))
            if await collection.versions(list(patches_of), deadline) == versions:
                if items:
                    await self._upsert(collection, items, deadline)
                return failures

    async def _upsert(
        self, collection: IndexCollection, items: Sequence[ItemRecord], deadline: Deadline
    ) -> None:
        """Raises AttributeInvalid for a value that its typed field cannot have."""
        item_ids = [item.item_id for item in items]
        rows, objects = [], []
        for item in items:
            key = item_key(collection.index_id, item.item_id)
            # Unlike that of any other write.
            record = pack_item(key, item, secrets.randbits(31))
            version = item_version(item.item_id, record)
            objects.append((record_key(collection.folder, version), record))
            rows.append(_row(collection, item, version, len(record)))
        old = await collection.versions(item_ids, deadline, LATELY)
        versions = [*(row["version"] for row in rows), *old.values()]
        await self.notes.leave(collection, item_ids, versions, deadline)
        await self._objects.put(objects)
        await self._connection.call("upsert", collection.name, rows, deadline=deadline)


def _row(
    collection: IndexCollection, item: ItemRecord, version: int, size_bytes: int
) -> dict[str, Any]:
    return _typed(collection, item.attributes) | {
        "item_id": item.item_id,
        "modality": MODALITY_NUMBERS[item.content.modality],
        "version": version,
        "size_bytes": size_bytes,
        "attributes": dict(item.attributes),
        "embedding": item.encoding.embedding,
    }


def _typed(collection: IndexCollection, attributes: Attributes) -> dict[str, Any]:
    """Returns the values of typed fields; raises AttributeInvalid, also for too many bytes."""
    if (length := len(attributes_json(attributes))) > _MAX_ATTRIBUTES_BYTES:
        raise AttributeInvalid(
            why=f"they have {length:,} bytes as JSON, Milvus stores {_MAX_ATTRIBUTES_BYTES:,}"
        )
    return {each.column: each.stored(attributes) for each in collection.fields.values()}
