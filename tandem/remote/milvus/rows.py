"""Writes and reads a collection's rows, and the records that they name in the object store.

A record is written before the row that names it by its version, and deleted after the row: however
a write ends, no row names a record that is not there.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attributes import Attributes
from tandem.errors import AttributeInvalid, ItemCorrupt
from tandem.local.item_store.item_record import RecordView, attributes_json, item_key, pack_item
from tandem.remote.milvus.collections import IndexCollection
from tandem.remote.milvus.connection import (
    ALL_WRITES,
    LATELY,
    Consistency,
    MilvusConnection,
    as_of,
)
from tandem.remote.milvus.expressions import any_of_ids
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.stages.items import ItemRecord

MODALITY_NUMBERS: Mapping[Modality, int] = {Modality.TEXT: 0, Modality.IMAGE: 1}

_MAX_ATTRIBUTES_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Holds what a row says of its item, without the embedding."""

    version: int
    size_bytes: int
    """Of the record."""
    attributes: Attributes


class Rows:
    """Reads and writes rows with their records."""

    def __init__(self, connection: MilvusConnection, objects: ItemObjects) -> None:
        self._connection = connection
        self._objects = objects

    async def read(
        self,
        collection: IndexCollection,
        item_ids: Sequence[str],
        deadline: Deadline,
        consistency: Consistency | None = None,
        *,
        attributes_included: bool = False,
    ) -> dict[str, StoredRow]:
        """Returns the rows of the items that exist, in the order of the ids.

        Sees this process's writes unless another consistency is given.
        """
        found = await self._connection.call(
            "query",
            collection.name,
            filter=any_of_ids(item_ids),
            output_fields=["version", "size_bytes", *["attributes"] * attributes_included],
            deadline=deadline,
            **(consistency or as_of(self._connection.written(collection.name))),
        )
        rows = {
            row["item_id"]: StoredRow(row["version"], row["size_bytes"], attributes_of(row))
            for row in found
        }
        return {item_id: rows[item_id] for item_id in item_ids if item_id in rows}

    async def records(
        self, collection: IndexCollection, rows: Mapping[str, StoredRow], deadline: Deadline
    ) -> dict[str, tuple[StoredRow, RecordView]]:
        """Returns the records of rows, without those of items that were deleted since.

        A row that was replaced since is read again. Raises ItemCorrupt.
        """
        found = await self._present(collection, rows, deadline)
        if missing := [item_id for item_id in rows if item_id not in found]:
            again = await self.read(collection, missing, deadline, ALL_WRITES)
            found |= await self._present(collection, again, deadline)
            for item_id in again:
                if item_id not in found:
                    raise ItemCorrupt(item_id=item_id, why="its record is not in the object store")
        return {
            item_id: (row, RecordView(item_id, item_key(collection.index_id, item_id), value))
            for item_id, (row, value) in found.items()
        }

    async def write(
        self, collection: IndexCollection, items: Sequence[ItemRecord], deadline: Deadline
    ) -> None:
        """Stores items; raises AttributeInvalid for a value that its typed field cannot have."""
        records = [
            pack_item(item_key(collection.index_id, item.item_id), item, 0) for item in items
        ]
        rows = [
            _row(collection, item, len(record)) for item, record in zip(items, records, strict=True)
        ]
        old = await self.read(collection, [item.item_id for item in items], deadline, LATELY)
        keys = [_object_key(collection, row["version"]) for row in rows]
        await self._objects.put(zip(keys, records, strict=True))
        await self._connection.call("upsert", collection.name, rows, deadline=deadline)
        await self._forget(collection, old)

    async def delete(
        self, collection: IndexCollection, item_ids: Sequence[str], deadline: Deadline
    ) -> int:
        """Deletes items, and returns how many of them were seen."""
        old = await self.read(collection, item_ids, deadline)
        await self._connection.delete(collection.name, any_of_ids(item_ids), deadline)
        await self._forget(collection, old)
        return len(old)

    async def _present(
        self, collection: IndexCollection, rows: Mapping[str, StoredRow], deadline: Deadline
    ) -> dict[str, tuple[StoredRow, bytes]]:
        async with deadline.kept("reading records"):
            values = await self._objects.get(
                _object_key(collection, row.version) for row in rows.values()
            )
        return {
            item_id: (row, value)
            for (item_id, row), value in zip(rows.items(), values, strict=True)
            if value is not None
        }

    async def _forget(self, collection: IndexCollection, old: Mapping[str, StoredRow]) -> None:
        await self._objects.delete(_object_key(collection, each.version) for each in old.values())


def attributes_of(row: Mapping[str, Any]) -> Attributes:
    """Returns the attributes of a row as they were written."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (row.get("attributes") or {}).items()
    }


def _row(collection: IndexCollection, item: ItemRecord, size_bytes: int) -> dict[str, Any]:
    if (length := len(attributes_json(item.attributes))) > _MAX_ATTRIBUTES_BYTES:
        raise AttributeInvalid(
            why=f"they have {length:,} bytes as JSON, Milvus stores {_MAX_ATTRIBUTES_BYTES:,}"
        )
    return {
        "item_id": item.item_id,
        "modality": MODALITY_NUMBERS[item.content.modality],
        # Unlike any other's, so that a write that ends late deletes only the record it replaced.
        "version": secrets.randbits(63),
        "size_bytes": size_bytes,
        "attributes": dict(item.attributes),
        "embedding": item.encoding.embedding,
        **{field.column: field.stored(item.attributes) for field in collection.fields},
    }


def _object_key(collection: IndexCollection, version: int) -> str:
    return f"{collection.folder}/{version:016x}"
