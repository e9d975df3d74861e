"""Defines the tables of one shard, makes and checks them, and packs and reads rows.

shard     one row: schema version, which shard of how many, where the change log stands, and until
          when a fence refuses writes
indexes   index id -> fingerprint, dimension and how many texts and images it has
items_... one table an index: id, modality, embedding and attributes, which searches read; head (a
          record of the item store without content) and content, under a CRC each
changes   sequence -> operation, index id, item id; the newest million
requests  request id -> the answer to the write; the newest 100,000
"""

from __future__ import annotations

import hashlib

import psycopg

from tandem.contract.content import Modality
from tandem.local.item_store.item_record import RecordView, item_key
from tandem.local.item_store.refused import StoreRefused
from tandem.remote.pgvector.connections import Connection

SCHEMA_VERSION = 1
KEPT_CHANGE_COUNT = 1_000_000
KEPT_REQUEST_COUNT = 100_000
MAX_INDEX_COUNT = 4_096
MAX_DIMENSION = 2_000
MODALITIES = tuple(Modality)
"""A modality's number in a row is its place here."""

# So that of several processes that start at once, one makes the tables.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {shard} (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    schema_version int NOT NULL, number int NOT NULL, count int NOT NULL,
    store_id text NOT NULL DEFAULT gen_random_uuid(),
    sequence bigint NOT NULL DEFAULT 0, request_number bigint NOT NULL DEFAULT 0,
    fence_end timestamptz NOT NULL DEFAULT '-infinity', is_sealed boolean NOT NULL DEFAULT false);
INSERT INTO {shard} (schema_version, number, count) VALUES ({version}, {number}, {count})
    ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS {indexes} (
    id text COLLATE "C" PRIMARY KEY, fingerprint text NOT NULL, dimension int NOT NULL,
    text_count bigint NOT NULL DEFAULT 0, image_count bigint NOT NULL DEFAULT 0)
    WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {changes} (
    sequence bigint PRIMARY KEY, operation text NOT NULL, index_id text NOT NULL,
    item_id text NOT NULL);
CREATE TABLE IF NOT EXISTS {requests} (
    id bytea PRIMARY KEY, digest bytea NOT NULL, sequence bigint NOT NULL,
    deleted_count int NOT NULL, number bigint NOT NULL UNIQUE);
"""
# Tokens and contents do not compress, and a part of one is read for its version.
_ITEMS = """
CREATE TABLE {items} (
    id text COLLATE "C" PRIMARY KEY, modality smallint NOT NULL, replaced smallint,
    embedding vector({dimension}) NOT NULL, attributes jsonb NOT NULL,
    head bytea STORAGE EXTERNAL NOT NULL, content bytea STORAGE EXTERNAL NOT NULL);
CREATE INDEX ON {items} USING gin (attributes jsonb_path_ops);
CREATE INDEX ON {items} USING hnsw (embedding vector_ip_ops) WHERE modality = 0;
CREATE INDEX ON {items} USING hnsw (embedding vector_ip_ops) WHERE modality = 1;
"""


class Tables:
    """Names a shard's tables, for statements."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._schema = '"{}"'.format(schema.replace('"', '""'))

    def of(self, statement: str, index_id: str = "", **parts: object) -> bytes:
        """Returns the statement with the names of the tables and the parts filled in."""
        # Ids are longer than names may be.
        digest = hashlib.blake2b(index_id.encode(), digest_size=12).hexdigest()
        names = {name: name for name in ("shard", "indexes", "changes", "requests")}
        names["items"] = f"items_{digest}"
        tables = {each: f"{self._schema}.{name}" for each, name in names.items()}
        return statement.format(schema=self._schema, **tables, **parts).encode()

    async def make(self, number: int, count: int, connection: Connection) -> None:
        """Makes what is missing; raises StoreRefused for tables of another shard or version."""
        try:
            stamp = await self.stamp(connection)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            async with connection.transaction():
                await connection.execute(_LOCK, [self.schema])
                await self._make_extension(connection)
                made = self.of(_TABLES, version=SCHEMA_VERSION, number=number, count=count)
                await connection.execute(made)
            stamp = await self.stamp(connection)
        if stamp[0] != SCHEMA_VERSION:
            raise StoreRefused(
                f"the tables of schema {self.schema} are of version {stamp[0]}, this release reads "
                f"{SCHEMA_VERSION}: use another schema, or the release that made them"
            )
        if stamp[1:] != (number, count):
            raise StoreRefused(
                f"schema {self.schema} has shard {stamp[1]} of {stamp[2]}, not {number} of "
                f"{count}: name this shard's schema"
            )

    async def make_index(self, connection: Connection, index_id: str, dimension: int) -> None:
        """Makes the table of a new index."""
        await connection.execute(self.of(_ITEMS, index_id, dimension=dimension))

    async def stamp(self, connection: Connection) -> tuple[int, ...]:
        """Returns the schema's version, the shard's number and the count of shards."""
        found = await connection.execute(
            self.of("SELECT schema_version, number, count FROM {shard}")
        )
        row = await found.fetchone()
        assert row is not None, "the row comes with its table"
        return row

    async def _make_extension(self, connection: Connection) -> None:
        found = await connection.execute(
            "SELECT extversion, current_setting('server_encoding') FROM pg_database "
            "LEFT JOIN pg_extension ON extname = 'vector' WHERE datname = current_database()"
        )
        row = await found.fetchone()
        assert row is not None, "a connection has a database"
        version, encoding = row
        if encoding != "UTF8":
            raise StoreRefused(f"the database's encoding is {encoding}: make one with UTF8")
        if version is None:
            await connection.execute("CREATE EXTENSION vector")
        elif tuple(map(int, version.split(".")[:2])) < (0, 8):
            raise StoreRefused(f"pgvector is of version {version}: update it to 0.8 or later")


def record_of(index_id: str, item_id: str, head: bytes) -> RecordView:
    """Returns a row's record; raises ItemCorrupt."""
    return RecordView(item_id, item_key(index_id, item_id), head)
