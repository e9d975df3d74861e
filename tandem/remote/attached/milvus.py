"""Searches collections of Milvus that another program fills, all of whose rows are images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.remote.attached.attachment import Attachment, Attachments
from tandem.remote.attached.shard import AttachedRow, AttachedShard, attributes_of
from tandem.remote.index_engine import EngineSettings
from tandem.remote.milvus.collections import (
    Collections,
    IndexCollection,
    Row,
    any_of_ids,
    of_modality,
)
from tandem.remote.milvus.connection import LATELY
from tandem.remote.milvus.shard import MilvusShard


@dataclass(frozen=True, kw_only=True)
class _AttachedCollection(IndexCollection):
    """Has the other program's names where an own collection has Tandem's."""

    entry: Attachment

    def own_condition(self, where: str) -> str:
        if where == of_modality(Modality.IMAGE):
            return f'{self.entry.id} != ""'
        if where == of_modality(Modality.TEXT):
            return f'{self.entry.id} == ""'
        return self.entry.id + where.removeprefix("item_id")  # no field is typed

    def columns(self, name: str) -> Sequence[str]:
        own = {"item_id": [self.entry.id], "embedding": [self.entry.vector]}
        return {**own, "attributes": self.entry.attributes}.get(name, [name])

    def row(self, row: Row) -> Row:
        values = {name: row.get(name) for name in self.entry.attributes}
        vector_D = np.asarray(row.get(self.entry.vector, ()), np.float32)
        return {
            "item_id": row.get(self.entry.id),
            **row,
            "attributes": attributes_of(values),
            "embedding": vector_D / (np.linalg.norm(vector_D) or np.nan),
        }


class _AttachedCollections(Collections):
    def __init__(self, own: Collections, attachments: Attachments) -> None:
        super().__init__(own.connection, own.objects, own.namespace, {})
        self._attachments = attachments

    async def get(
        self, index_id: str, deadline: Deadline, *, is_fresh: bool = False
    ) -> IndexCollection:
        info, entry = self._attachments.info(index_id), self._attachments.of(index_id)
        return _AttachedCollection(
            info.fingerprint,
            info.dimension,
            self.connection,
            self.objects,
            index_id,
            entry.table,
            folder="",
            fields={},
            entry=entry,
        )

    async def index_ids(self, deadline: Deadline) -> list[str]:
        return sorted(self._attachments.indexes)


class AttachedMilvusShard(AttachedShard, MilvusShard):
    """A shard whose indexes are another program's collections."""

    def __init__(self, settings: EngineSettings) -> None:
        """Raises SettingsError for a file, or a store of pictures, that cannot be used."""
        super().__init__(settings)
        self.attachments = Attachments.read(Path(settings.attachments))
        self.objects = self._collections.objects
        self._collections = _AttachedCollections(self._collections, self.attachments)

    async def open(self) -> None:
        """Connects; makes nothing."""
        await self.check()

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()

    async def rows(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> Mapping[str, AttachedRow]:
        """Returns the rows that there are."""
        entry = self.attachments.of(index_id)
        collection = await self._collections.get(index_id, deadline)
        fields = [entry.vector, entry.picture, *entry.attributes]
        found = await collection.query(any_of_ids(item_ids), fields, deadline, LATELY)
        return {
            row["item_id"]: AttachedRow(
                np.asarray(row[entry.vector], np.float32), row[entry.picture], row["attributes"]
            )
            for row in found
        }
