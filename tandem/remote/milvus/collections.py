"""Makes, finds and reads the collection of each index.

A collection's description names the model and the folder of its records. It is written with the
collection, so that two services that make one index at once agree on one model.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pymilvus import DataType, MilvusClient
from pymilvus.client.types import LoadState

from tandem.chassis.settings import SettingsError
from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.errors import IndexNotFound, ItemCorrupt, ServiceUnavailable, TandemError
from tandem.local.item_store.item_record import RecordView, item_key
from tandem.remote.milvus.connection import Consistency, MilvusConnection
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.remote.milvus.typed_fields import TypedField, literal, typed_fields
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Upsert

INDEX_TYPE = "HNSW"
MODALITY_NUMBERS: Mapping[Modality, int] = {Modality.TEXT: 0, Modality.IMAGE: 1}
_INDEX_PARAMETERS = {"M": 16, "efConstruction": 200}

# Another service may drop an index and make it again with another model.
_KNOWN_SECONDS = 1.0

Row: TypeAlias = Mapping[str, Any]
"""The requested fields of a row, and its `item_id`."""


@dataclass(frozen=True, slots=True)
class IndexCollection(IndexInfo):
    """Reads the collection of one index; reads see this process's writes by default."""

    connection: MilvusConnection
    objects: ItemObjects
    index_id: str
    name: str
    folder: str
    """Of the collection's records in the object store; no other collection ever had it."""
    fields: Mapping[str, TypedField]
    known_time: float = field(default_factory=time.monotonic)

    async def query(
        self,
        where: str,
        fields: Sequence[str],
        deadline: Deadline,
        seen: Consistency | None = None,
        limit: int | None = None,
    ) -> Sequence[Row]:
        """Returns those fields of the rows that match, in the order of ids."""
        found: Sequence[Row] = await self.connection.call(
            "query",
            self.name,
            filter=self.own_condition(where),
            output_fields=[column for each in fields for column in self.columns(each)],
            limit=limit,
            deadline=deadline,
            **(seen or self.connection.as_written(self.name)),
        )
        return [self.row(each) for each in found]

    def own_condition(self, where: str) -> str:
        """Returns a condition on ids, modality and typed fields by this collection's names."""
        return where

    def columns(self, name: str) -> Sequence[str]:
        """Returns what this collection calls a field."""
        return [name]

    def row(self, row: Row) -> Row:
        """Returns a row of this collection's names by Tandem's."""
        return row

    async def versions(
        self, item_ids: Sequence[str], deadline: Deadline, seen: Consistency | None = None
    ) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        found = await self.query(any_of_ids(item_ids), ["version"], deadline, seen)
        return {row["item_id"]: row["version"] for row in found}

    async def records(
        self, versions: Mapping[str, int], deadline: Deadline
    ) -> Sequence[RecordView]:
        """Returns the records of items, by their ids and versions; raises ItemCorrupt."""
        keys = [record_key(self.folder, each) for each in versions.values()]
        async with deadline.kept("reading records"):
            values = await self.objects.get(keys)
        records = []
        for item_id, value in zip(versions, values, strict=True):
            if value is None:
                raise ItemCorrupt(item_id=item_id, why="its record is not in the object store")
            records.append(RecordView(item_id, item_key(self.index_id, item_id), value))
        return records

    async def count(self, where: str, deadline: Deadline, seen: Consistency | None = None) -> int:
        """Returns how many rows match the expression."""
        [answer] = await self.query(where, ["count(*)"], deadline, seen)
        return int(answer["count(*)"])

    async def counts(
        self, deadline: Deadline, seen: Consistency | None = None
    ) -> Mapping[Modality, int]:
        """Returns how many items there are of each modality."""
        counts = [self.count(of_modality(each), deadline, seen) for each in Modality]
        return dict(zip(Modality, await asyncio.gather(*counts), strict=True))


class Collections:
    """Knows the collections of one namespace."""

    def __init__(
        self,
        connection: MilvusConnection,
        objects: ItemObjects,
        namespace: str,
        fields: Mapping[str, TypedField],
    ) -> None:
        """Makes new collections with those typed fields."""
        self.connection = connection
        self.objects = objects
        self.namespace = namespace
        self._prefix = f"{namespace}_"
        self._fields = fields
        self._known: dict[str, IndexCollection] = {}

    async def get(
        self, index_id: str, deadline: Deadline, *, is_fresh: bool = False
    ) -> IndexCollection:
        """Returns the collection, as it was at most a second ago; raises IndexNotFound."""
        known = self._known.get(index_id)
        if known and not is_fresh and time.monotonic() - known.known_time < _KNOWN_SECONDS:
            return known
        name = self._name(index_id)
        try:
            described = await self.connection.call("describe_collection", name, deadline=deadline)
            stored = json.loads(described["description"])
            fields = typed_fields(stored["fields"])
        except IndexNotFound:
            self._known.pop(index_id, None)
            raise IndexNotFound(index_id=index_id) from None
        except (ValueError, LookupError, SettingsError) as error:
            why = f"Milvus' collection {name} is not Tandem's"
            raise ServiceUnavailable(service="index", why=why) from error
        [dimension] = [
            int(column["params"]["dim"])
            for column in described["fields"]
            if column["name"] == "embedding"
        ]
        if known is None:  # also after a service died that had just made it
            await self._load(name, deadline)
        model, folder = stored["fingerprint"], stored["folder"]
        known = self._known[index_id] = IndexCollection(
            model, dimension, self.connection, self.objects, index_id, name, folder, fields
        )
        return known

    async def made_for(self, upsert: Upsert, deadline: Deadline) -> IndexCollection:
        """Returns the index's collection, made if there was none.

        Raises ModelMismatch and EmbeddingInvalid.
        """
        embedding = upsert.items[0].encoding.embedding
        try:
            found = await self.get(upsert.index_id, deadline, is_fresh=True)
        except IndexNotFound:
            await self._make(upsert, len(embedding), deadline)
            found = await self.get(upsert.index_id, deadline, is_fresh=True)
        found.check(upsert.fingerprint, [embedding])
        return found

    async def index_ids(self, deadline: Deadline) -> list[str]:
        """Returns the ids of all indexes, in byte order."""
        names = await self.connection.call("list_collections", deadline=deadline)
        return sorted(
            name.removeprefix(self._prefix).replace("_a", "@").replace("_d", "-").replace("_u", "_")
            for name in names
            if name.startswith(self._prefix)
        )

    async def drop(self, collection: IndexCollection, deadline: Deadline) -> None:
        """Drops the collection with its rows."""
        self._known.pop(collection.index_id, None)
        await self.connection.call("drop_collection", collection.name, deadline=deadline)

    async def _make(self, upsert: Upsert, dimension: int, deadline: Deadline) -> None:
        stored = {
            "fingerprint": upsert.fingerprint,
            "folder": uuid.uuid4().hex,
            "fields": list(map(str, self._fields.values())),
        }
        schema = MilvusClient.create_schema(auto_id=False, description=json.dumps(stored))
        schema.add_field("item_id", DataType.VARCHAR, is_primary=True, max_length=MAX_ITEM_ID_BYTES)
        schema.add_field("modality", DataType.INT8)
        schema.add_field("version", DataType.INT64)
        schema.add_field("size_bytes", DataType.INT64)
        schema.add_field("attributes", DataType.JSON)
        for typed in self._fields.values():
            typed.add_to(schema)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=dimension)
        name = self._name(upsert.index_id)
        try:
            # One shard: a batch then is one message, whose rows are seen together.
            await self.connection.call(
                "create_collection", name, schema=schema, num_shards=1, deadline=deadline
            )
        except TandemError:
            # Another service may have made it just now, for one model or another.
            if upsert.index_id not in await self.index_ids(deadline):
                raise

    async def _load(self, name: str, deadline: Deadline) -> None:
        """Has Milvus index the collection and load it, unless it does or did."""
        state = await self.connection.call("get_load_state", name, deadline=deadline)
        if state["state"] is not LoadState.NotLoad:
            return
        index = MilvusClient.prepare_index_params()
        index.add_index(
            "embedding", index_type=INDEX_TYPE, metric_type="IP", params=_INDEX_PARAMETERS
        )
        await self.connection.call("create_index", name, index, deadline=deadline)
        await self.connection.call("load_collection", name, deadline=deadline)

    def _name(self, index_id: str) -> str:
        # Milvus' names have no "-" and no "@".
        return self._prefix + index_id.replace("_", "_u").replace("-", "_d").replace("@", "_a")


def attributes_of(row: Row) -> Attributes:
    """Returns the attributes of a row as they were written."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (row["attributes"] or {}).items()
    }


def record_key(folder: str, version: int) -> str:
    """Returns the key of the record that a row of this version names."""
    return f"{folder}/{version:016x}"


def any_of_ids(item_ids: Sequence[str]) -> str:
    """Returns the expression that finds the items."""
    return f"item_id in {literal(list(item_ids))}"


def of_modality(modality: Modality) -> str:
    """Returns the expression of the rows of a modality."""
    return f"modality == {MODALITY_NUMBERS[modality]}"
