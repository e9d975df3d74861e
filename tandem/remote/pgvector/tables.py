"""Defines the tables of one shard, makes and checks them, and reads rows.

shard     one row: schema version, which shard of how many, where the change log stands, until when
          a fence refuses writes, and who may write which index, as the notes "writer/..." say
indexes   index id -> fingerprint, dimension and how many texts and images it has
items_... one table an index: id, modality, embedding and attributes, which searches read; head (a
          record of the item store without content) and content, under a CRC each
changes   sequence -> index id, and item id, empty for a dropped index; the newest million
requests  request id -> the answer to the write; the newest 100,000
notes     key -> value and revision (stages/notes.py)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg

from tandem.contract.content import Modality
from tandem.errors import IndexNotFound
from tandem.local.item_store.item_record import RecordView, item_key
from tandem.local.item_store.refused import StoreRefused
from tandem.remote.pgvector.connections import Row, Session
from tandem.stages.index_info import IndexInfo

SCHEMA_VERSION = 2
MODALITIES = tuple(Modality)
"""A modality's number in a row is its place here."""

# So that of several processes that start at once, one makes the tables.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('{schema}', 0))"
_THERE = """
SELECT to_regclass('{shard}') IS NOT NULL, to_regnamespace('{made}') IS NOT NULL,
    to_regclass('{notes}') IS NOT NULL, EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = to_regclass('{requests}') AND attname = 'failures')
"""
_STAMP = "SELECT schema_version, number, count FROM {shard}"
_DATABASE = """
SELECT current_setting('server_encoding'), extversion
FROM pg_database LEFT JOIN pg_extension ON extname = 'vector' WHERE datname = current_database()
"""
# The schema {made} outlives the other, and tells one that is gone from one that never was.
_TABLES = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE SCHEMA {made};
COMMENT ON SCHEMA {made} IS 'Tandem has made its tables, and makes no others while this exists';
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE {shard} (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    schema_version int NOT NULL, number int NOT NULL, count int NOT NULL,
    store_id text NOT NULL DEFAULT gen_random_uuid(),
    sequence bigint NOT NULL DEFAULT 0,
    fence_end timestamptz NOT NULL DEFAULT '-infinity', is_sealed boolean NOT NULL DEFAULT false);
INSERT INTO {shard} (schema_version, number, count) VALUES ({version}, {number}, {count});
CREATE TABLE {indexes} (
    id text COLLATE "C" PRIMARY KEY, fingerprint text NOT NULL, dimension int NOT NULL,
    text_count bigint NOT NULL DEFAULT 0, image_count bigint NOT NULL DEFAULT 0)
    WITH (fillfactor = 50);
CREATE TABLE {changes} (
    sequence bigint PRIMARY KEY, index_id text NOT NULL, item_id text NOT NULL);
CREATE TABLE {requests} (
    id bytea PRIMARY KEY, digest text NOT NULL, sequence bigint NOT NULL,
    deleted_count int NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY UNIQUE);
"""
# Apart, because releases before them made the others, and continue with them.
_NOTES = """
ALTER TABLE {shard} ADD COLUMN writers jsonb NOT NULL DEFAULT '{{}}';
CREATE TABLE {notes} (
    key text COLLATE "C" PRIMARY KEY, value text NOT NULL, revision bigint NOT NULL);
"""
_FAILURES = "ALTER TABLE {requests} ADD COLUMN failures jsonb NOT NULL DEFAULT '{{}}'"
# Tokens and contents do not compress, and a part of one is read for its version.
ITEMS = """
CREATE TABLE {items} (
    id text COLLATE "C" PRIMARY KEY, modality smallint NOT NULL, replaced smallint,
    embedding vector({dimension}) NOT NULL, attributes jsonb NOT NULL,
    head bytea STORAGE EXTERNAL NOT NULL, content bytea STORAGE EXTERNAL NOT NULL);
CREATE INDEX ON {items} USING gin (attributes jsonb_path_ops);
CREATE INDEX ON {items} USING hnsw (embedding vector_ip_ops) WHERE modality = 0;
CREATE INDEX ON {items} USING hnsw (embedding vector_ip_ops) WHERE modality = 1;
"""
_INDEX = """
SELECT fingerprint, dimension, text_count, image_count, (SELECT sequence FROM {shard})
FROM {indexes} WHERE id = %s {lock}
"""
# One statement sees one state.
_READ = """
SELECT indexes.fingerprint, items.id, {parts}
FROM {indexes} AS indexes LEFT JOIN {items} AS items ON items.id = ANY(%s) WHERE indexes.id = %s
"""


@dataclass(frozen=True, slots=True)
class IndexRow(IndexInfo):
    """Holds an index's row, and where the change log stood when it was read."""

    text_count: int
    image_count: int
    sequence: int

    @property
    def counts(self) -> Mapping[Modality, int]:
        """Returns how many items it has of each modality."""
        return {Modality.TEXT: self.text_count, Modality.IMAGE: self.image_count}


async def index_row(index_id: str, session: Session, *, lock: str = "") -> IndexRow:
    """Returns the index's row, under the lock if there is one; raises IndexNotFound."""
    if rows := await session.rows(_INDEX, [index_id], lock=lock):
        return IndexRow(*rows[0])
    raise IndexNotFound(index_id=index_id)


async def item_rows(
    index_id: str, item_ids: Sequence[str], parts: str, session: Session
) -> tuple[str, list[Row]]:
    """Returns the index's fingerprint, then id and parts of the items that exist, in no order.

    Raises IndexNotFound.
    """
    try:
        rows = await session.rows(_READ, [list(item_ids), index_id], index_id, parts=parts)
    except psycopg.errors.UndefinedTable:
        await index_row(index_id, session)
        raise
    if not rows:
        raise IndexNotFound(index_id=index_id)
    return rows[0][0], [row[1:] for row in rows if row[1] is not None]


def record_of(index_id: str, item_id: str, head: bytes) -> RecordView:
    """Returns a row's record; raises ItemCorrupt."""
    return RecordView(item_id, item_key(index_id, item_id), head)


async def check(session: Session) -> Sequence[int]:
    """Returns the schema's version, the shard's number and the count of shards."""
    [stamp] = await session.rows(_STAMP)
    return stamp


async def make(number: int, count: int, session: Session) -> None:
    """Makes the tables where they never were.

    Raises StoreRefused for tables that are gone, or of another shard or version.
    """
    async with session.connection.transaction():
        await session.rows(_LOCK)
        [(is_there, was_there, has_notes, has_failures)] = await session.rows(_THERE)
        if not is_there:
            [(encoding, pgvector)] = await session.rows(_DATABASE)
            if was_there:
                raise StoreRefused(
                    "the tables that were in the engine's namespace are gone: restore them, or "
                    "drop the schema whose name ends in _made, so that empty ones are made"
                )
            if encoding != "UTF8":
                raise StoreRefused(f"the database's encoding is {encoding}: make one with UTF8")
            if pgvector and tuple(map(int, pgvector.split(".")[:2])) < (0, 8):
                raise StoreRefused(f"pgvector is of version {pgvector}: update it to 0.8 or later")
            await session.rows(_TABLES, version=SCHEMA_VERSION, number=number, count=count)
        if not has_notes:
            await session.rows(_NOTES)
        if not has_failures:
            await session.rows(_FAILURES)
    version, *place = await check(session)
    if version != SCHEMA_VERSION:
        raise StoreRefused(
            f"the tables of the engine's namespace are of version {version}, this release reads "
            f"{SCHEMA_VERSION}: name another namespace, or use the release that made them"
        )
    if place != [number, count]:
        raise StoreRefused(
            f"the engine's namespace has shard {place[0]} of {place[1]}, not {number} of {count}: "
            "name this shard's namespace"
        )
