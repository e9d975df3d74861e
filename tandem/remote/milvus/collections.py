"""Makes, finds and describes the collection of each index.

A collection's description names the model and the folder of its records. It is written with the
collection, so that two services that make one index at once agree on one model.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from pymilvus import DataType, MilvusClient
from pymilvus.client.types import LoadState

from tandem.chassis.settings import SettingsError
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.errors import (
    IndexNotFound,
    ServiceUnavailable,
    TandemError,
)
from tandem.remote.milvus.connection import MilvusConnection
from tandem.remote.milvus.typed_fields import TypedField, typed_fields
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Upsert

INDEX_TYPE = "HNSW"
_INDEX_PARAMETERS = {"M": 16, "efConstruction": 200}

# Another service may drop an index and make it again with another model.
_KNOWN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class IndexCollection(IndexInfo):
    """Describes the collection of one index."""

    index_id: str
    name: str
    folder: str
    """Of the collection's records in the object store; no other collection ever had it."""
    fields: Sequence[TypedField]
    known_time: float = field(default_factory=time.monotonic)


class Collections:
    """Knows the collections of one namespace."""

    def __init__(
        self, connection: MilvusConnection, namespace: str, fields: Sequence[TypedField]
    ) -> None:
        """Makes new collections with those typed fields."""
        self._connection = connection
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
            described = await self._connection.call("describe_collection", name, deadline=deadline)
            stored = json.loads(described["description"])
            fields = typed_fields(stored["fields"])
        except IndexNotFound:
            self._known.pop(index_id, None)
            raise IndexNotFound(index_id=index_id) from None
        except (ValueError, LookupError, SettingsError) as error:
            why = f"Milvus' collection {name} is not Tandem's"
            raise ServiceUnavailable(service="index", why=why) from error
        columns = {each["name"]: each for each in described["fields"]}
        if known is None:  # also after a service died that had just made it
            await self._load(name, deadline)
        known = self._known[index_id] = IndexCollection(
            stored["fingerprint"],
            int(columns["embedding"]["params"]["dim"]),
            index_id,
            name,
            stored["folder"],
            fields,
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
        names = await self._connection.call("list_collections", deadline=deadline)
        return sorted(
            name.removeprefix(self._prefix).replace("_d", "-").replace("_u", "_")
            for name in names
            if name.startswith(self._prefix)
        )

    async def drop(self, collection: IndexCollection, deadline: Deadline) -> None:
        """Drops the collection with its rows."""
        self._known.pop(collection.index_id, None)
        await self._connection.call("drop_collection", collection.name, deadline=deadline)

    async def _make(self, upsert: Upsert, dimension: int, deadline: Deadline) -> None:
        stored = {
            "fingerprint": upsert.fingerprint,
            "folder": uuid.uuid4().hex,
            "fields": list(map(str, self._fields)),
        }
        schema = MilvusClient.create_schema(auto_id=False, description=json.dumps(stored))
        schema.add_field("item_id", DataType.VARCHAR, is_primary=True, max_length=MAX_ITEM_ID_BYTES)
        schema.add_field("modality", DataType.INT8)
        schema.add_field("version", DataType.INT64)
        schema.add_field("size_bytes", DataType.INT64)
        schema.add_field("attributes", DataType.JSON)
        for typed in self._fields:
            typed.add_to(schema)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=dimension)
        name = self._name(upsert.index_id)
        try:
            # One shard: a batch then is one message, whose rows are seen together.
            await self._connection.call(
                "create_collection", name, schema=schema, num_shards=1, deadline=deadline
            )
        except TandemError:
            # Another service may have made it just now, for one model or another.
            if upsert.index_id not in await self.index_ids(deadline):
                raise

    async def _load(self, name: str, deadline: Deadline) -> None:
        """Has Milvus index the collection and load it, unless it does or did."""
        state = await self._connection.call("get_load_state", name, deadline=deadline)
        if state["state"] is not LoadState.NotLoad:
            return
        index = MilvusClient.prepare_index_params()
        index.add_index(
            "embedding", index_type=INDEX_TYPE, metric_type="IP", params=_INDEX_PARAMETERS
        )
        await self._connection.call("create_index", name, index, deadline=deadline)
        await self._connection.call("load_collection", name, deadline=deadline)

    def _name(self, index_id: str) -> str:
        # Milvus' names have no "-".
        return self._prefix + index_id.replace("_", "_u").replace("-", "_d")
