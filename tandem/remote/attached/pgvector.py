"""Searches tables or views of Postgres that another program fills.

The statements of an own shard read subqueries over them in the place of Tandem's tables. Postgres
merges a subquery with its query, and uses the table's own indexes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tandem.contract.deadline import Deadline
from tandem.remote.attached.attachment import Attachments
from tandem.remote.attached.shard import AttachedRow, AttachedShard
from tandem.remote.index_engine import EngineSettings
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.remote.pgvector.connections import Servers, Session, vector_of
from tandem.remote.pgvector.shard import PgvectorShard

# Up to 1,000 rows are counted; of more, Postgres' estimate is the count.
_INDEX = """
SELECT '{id}' AS id, '{fingerprint}' AS fingerprint, {dimension} AS dimension, 0 AS text_count,
    greatest((SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass('{table}')),
        (SELECT count(*) FROM (SELECT FROM {table} LIMIT 1000))) AS image_count
"""
_ITEMS = """(
SELECT {id}::text AS id, 1 AS modality, {vector} AS embedding, {picture}::text AS picture,
    jsonb_build_object({attributes}) AS attributes FROM {table})
"""
_ROWS = "SELECT id, vector_send(embedding), picture, attributes FROM {items} WHERE id = ANY(%s)"
_NO_VECTOR = np.empty(0, np.float32)
_DISTANCES = {
    "cosine": {"operator": "<=>", "at_same": "1"},
    "inner product": {"operator": "<#>", "at_same": "0"},
}


class AttachedPgvectorShard(AttachedShard, PgvectorShard):
    """A shard whose indexes are another program's tables."""

    def __init__(self, settings: EngineSettings) -> None:
        """Raises SettingsError for a file, or a store of pictures, that cannot be used."""
        super().__init__(settings)
        self.attachments = Attachments.read(Path(settings.attachments))
        self.objects = ItemObjects(self.attachments.pictures, is_new=False)
        self._servers = Servers(settings, self._names)
        self._connections = self._servers.primary

    async def open(self) -> None:
        """Reads each table; makes none."""
        await self.check()

    async def check(self) -> None:
        """Raises ServiceUnavailable, also for a table or column that is not there."""
        await self._servers.check(self._looked_at)

    async def rows(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> Mapping[str, AttachedRow]:
        """Returns the rows that there are."""

        async def read(session: Session) -> Mapping[str, AttachedRow]:
            return {
                item_id: AttachedRow(_NO_VECTOR if vector is None else vector_of(vector), *others)
                for item_id, vector, *others in await session.rows(_ROWS, [[*item_ids]], index_id)
            }

        return await self._servers.read(read, deadline, "read")

    async def _looked_at(self, session: Session) -> None:
        for index_id in self.attachments.indexes:
            await session.rows("SELECT %s::text FROM {items} LIMIT 0", [""], index_id)

    def _names(self, index_id: str) -> Mapping[str, str]:
        indexes = " UNION ALL ".join(map(self._index_row, self.attachments.indexes))
        names = {"shard": "(SELECT 0 AS sequence)", "indexes": f"({indexes})"}
        if not index_id:
            return names
        entry = self.attachments.of(index_id)
        items = _ITEMS.format(
            id=_quoted(entry.id),
            vector=_quoted(entry.vector),
            picture=_quoted(entry.picture),
            attributes=", ".join(f"'{each}', {_quoted(each)}" for each in entry.attributes),
            table=_quoted(*entry.table.split(".")),
        )
        return names | {"items": items, "unit": "l2_normalize"} | _DISTANCES[entry.metric]

    def _index_row(self, index_id: str) -> str:
        info = self.attachments.info(index_id)
        table = _quoted(*self.attachments.of(index_id).table.split("."))
        return _INDEX.format(
            id=index_id, fingerprint=info.fingerprint, dimension=info.dimension, table=table
        )


def _quoted(*names: str) -> str:
    """Returns a name as it stands in a statement that has parameters."""
    return ".".join('"{}"'.format(name.replace('"', '""').replace("%", "%%")) for name in names)
