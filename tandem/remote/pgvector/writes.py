"""Commits a batch in one transaction: rows, counts, changes and the answer to its request id."""

import secrets
from collections.abc import Mapping, Sequence

import psycopg
from psycopg.types.json import Jsonb

from tandem.contract.search.item_changes import patched
from tandem.errors import (
    AttributeInvalid,
    EmbeddingInvalid,
    IndexNotFound,
    ItemCorrupt,
    StoreFull,
)
from tandem.local.item_store.item_record import item_key, pack_apart
from tandem.local.item_store.request_log import KEPT_REQUEST_COUNT, repeated, write_digest
from tandem.remote.pgvector.conditions import exact
from tandem.remote.pgvector.connections import Row, Session
from tandem.remote.pgvector.tables import ITEMS, MODALITIES, index_row, record_of
from tandem.stages.item_write import Committed, Fence, ItemsWrite, Patch, Upsert, refused_by_fence
from tandem.stages.items import Deleted
from tandem.stages.notes import Note, PutNote, SetWriter, WriterRule

KEPT_CHANGE_COUNT = 1_000_000
MAX_INDEX_COUNT = 4_096
MAX_DIMENSION = 2_000
# Keeps the index from being dropped meanwhile; writers do not wait for one another.
_LOCK = "FOR KEY SHARE"
_NEW_INDEX = """
INSERT INTO {indexes} (id, fingerprint, dimension) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING
RETURNING id
"""
_UPSERT = """
INSERT INTO {items} AS old (id, modality, embedding, attributes, head, content) VALUES {rows}
ON CONFLICT (id) DO UPDATE SET
    modality = EXCLUDED.modality, embedding = EXCLUDED.embedding,
    attributes = EXCLUDED.attributes, head = EXCLUDED.head, content = EXCLUDED.content,
    replaced = old.modality
RETURNING id, modality, replaced
"""
# Rows are locked in the order of ids, here and above, so that no two writes wait for each other.
_DELETE = """
DELETE FROM {items} WHERE id IN (
    SELECT id FROM {items} WHERE id = ANY(%s) ORDER BY id FOR UPDATE)
RETURNING id, NULL, modality
"""
_HEADS = "SELECT id, head FROM {items} WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
_PATCH = """
UPDATE {items} AS old SET attributes = new.attributes, head = new.head
FROM unnest(%s::text[], %s::jsonb[], %s::bytea[]) AS new (id, attributes, head)
WHERE old.id = new.id RETURNING old.id, NULL, NULL
"""
_ANSWER = """
SELECT digest, sequence, deleted_count, failures FROM {requests} WHERE id = %(request_id)s
"""
_DROP = "DELETE FROM {indexes} WHERE id = %s RETURNING text_count + image_count"
# Last, because it takes the one row that all writes take, until the commit.
_FINISH = f"""
WITH counted AS (
    UPDATE {{indexes}} SET text_count = text_count + %(texts)s,
        image_count = image_count + %(images)s WHERE id = %(index_id)s),
moved AS (
    UPDATE {{shard}} SET sequence = sequence + cardinality(%(item_ids)s::text[])
    WHERE fence_end <= clock_timestamp() AND NOT is_sealed
    RETURNING sequence, writers -> %(index_id)s::text AS rule),
logged AS (
    INSERT INTO {{changes}}
    SELECT sequence - cardinality(%(item_ids)s::text[]) + place, %(index_id)s, item_id
    FROM moved, unnest(%(item_ids)s::text[]) WITH ORDINALITY AS each (item_id, place)),
kept AS (
    INSERT INTO {{requests}} (id, digest, sequence, deleted_count, failures)
    SELECT %(request_id)s, %(digest)s, sequence, %(deleted)s, %(failures)s FROM moved
    WHERE %(request_id)s::bytea IS NOT NULL RETURNING number),
forgotten AS (
    DELETE FROM {{requests}} WHERE number <= (SELECT number FROM kept) - {KEPT_REQUEST_COUNT}),
trimmed AS (
    DELETE FROM {{changes}} WHERE sequence <= (SELECT sequence FROM moved) - {KEPT_CHANGE_COUNT})
SELECT sequence, rule FROM moved
"""
_NOTHING = {"texts": 0, "images": 0, "deleted": 0, "request_id": None, "digest": None} | {
    "failures": Jsonb({})
}
_FENCE = """
UPDATE {shard} SET fence_end = clock_timestamp() + make_interval(secs => %(seconds)s),
    is_sealed = CASE WHEN sequence = %(sealed)s::bigint THEN true
        ELSE is_sealed AND %(seconds)s > 0 END
RETURNING sequence, is_sealed
"""
# The row that all writes take: they wait for a note, and it for those that are committing.
_HELD = """
SELECT sequence FROM {shard} WHERE fence_end <= clock_timestamp() AND NOT is_sealed
FOR NO KEY UPDATE
"""
_NOTE = "SELECT key, value, revision FROM {notes} WHERE key = %s"
_KEEP = """
INSERT INTO {notes} (key, value, revision) VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value, revision = EXCLUDED.revision
"""
_RULE = "UPDATE {shard} SET writers = writers || jsonb_build_object(%s::text, %s::jsonb)"


async def committed(write: ItemsWrite, session: Session) -> Committed:
    """Commits the write, and returns once it is on disk; raises what `Shard.write` raises."""
    try:
        async with session.connection.transaction():
            return await _written(write, session)
    except psycopg.errors.UniqueViolation:
        # A write of the same request id committed first: this one gets its answer.
        async with session.connection.transaction():
            return await _written(write, session)


async def dropped(index_id: str, session: Session) -> Deleted:
    """Drops the index with all its items; raises IndexNotFound."""
    async with session.connection.transaction():
        rows = await session.rows(_DROP, [index_id])
        if not rows:
            raise IndexNotFound(index_id=index_id)
        await session.rows("DROP TABLE {items}", index_id=index_id)
        sequence, _ = await _finished({"index_id": index_id, "item_ids": [""]}, session)
        return Deleted(rows[0][0], sequence)


async def fenced(fence: Fence, session: Session) -> Committed:
    """Begins, seals or ends a fence, once the writes that are committing are done."""
    values = {"seconds": fence.seconds, "sealed": fence.sealed_sequence}
    [(sequence, is_sealed)] = await session.rows(_FENCE, values)
    return Committed(sequence, is_sealed=is_sealed)


async def noted(write: PutNote | SetWriter, session: Session) -> Committed:
    """Keeps a note, once the writes that are committing are done; raises what `replacing` does."""
    async with session.connection.transaction():
        held = await session.rows(_HELD)
        if not held:
            raise refused_by_fence()
        stored = await session.rows(_NOTE, [write.key])
        note = write.replacing(Note(*stored[0]) if stored else None)
        await session.rows(_KEEP, [note.key, note.value, note.revision])
        if isinstance(write, SetWriter):
            rule = {"term": write.term, "is_open": write.is_open}
            await session.rows(_RULE, [write.index_id, Jsonb(rule)])
        return Committed(held[0][0])


async def _written(write: ItemsWrite, session: Session) -> Committed:
    values: dict[str, object] = {"index_id": write.index_id}
    failures: Mapping[str, str] = {}
    deleted_count = 0
    if write.request_id:
        values |= {"request_id": write.request_id.encode(), "digest": write_digest(write)}
        if answers := await session.rows(_ANSWER, values):
            return repeated(write, *answers[0])
    if isinstance(write, Upsert):
        await _admit(write, session)
        changed = await _upserted(write, session)
    else:
        try:
            await index_row(write.index_id, session, lock=_LOCK)
        except IndexNotFound:  # Where a generation is gone, its rule says that others write.
            await _ruled(write, {**values, "item_ids": []}, session)
            raise
        if isinstance(write, Patch):
            changed, failures = await _patched(write, session)
        else:
            changed = await session.rows(_DELETE, [list(write.item_ids)], write.index_id)
            values["deleted"] = deleted_count = len(changed)
    for number, name in enumerate(("texts", "images")):
        added = sum(new == number for _, new, _ in changed)
        values[name] = added - sum(old == number for *_, old in changed)
    values["item_ids"] = [item_id for item_id, *_ in changed]
    sequence = await _ruled(write, {**values, "failures": Jsonb(failures)}, session)
    return Committed(sequence, deleted_count, failures=failures)


async def _patched(write: Patch, session: Session) -> tuple[Sequence[Row], Mapping[str, str]]:
    """Writes the rows that change; returns them, and why others cannot."""
    patches_of = write.by_item
    rows = await session.rows(_HEADS, [list(patches_of)], write.index_id)
    heads: dict[str, bytes] = dict(rows)
    failures = {item_id: "" for item_id in patches_of if item_id not in heads}
    ids, values, records = [], [], []
    for item_id, head in heads.items():
        try:
            record = record_of(write.index_id, item_id, head)
            attributes = patched(patches_of[item_id], record.attributes())
            values.append(Jsonb(exact(attributes)))
        except (AttributeInvalid, ItemCorrupt) as error:
            failures[item_id] = error.message
            continue
        ids.append(item_id)
        records.append(record.with_attributes(attributes, secrets.randbits(63)))
    return await session.rows(_PATCH, [ids, values, records], write.index_id), failures


async def _ruled(write: ItemsWrite, values: Mapping[str, object], session: Session) -> int:
    """Finishes the write under the rule that holds when it commits; raises WriterRefused."""
    sequence, rule = await _finished(values, session)
    WriterRule(**rule or {}).check(write.index_id, write.term)
    return int(sequence)


async def _admit(write: Upsert, session: Session) -> None:
    """Checks the write against its index, which it creates if it is missing."""
    embedding = write.items[0].encoding.embedding
    try:
        index = await index_row(write.index_id, session, lock=_LOCK)
    except IndexNotFound:
        await _create(write, len(embedding), session)
        index = await index_row(write.index_id, session, lock=_LOCK)
    index.check(write.fingerprint, [embedding])


async def _create(write: Upsert, dimension: int, session: Session) -> None:
    if dimension > MAX_DIMENSION:
        raise EmbeddingInvalid(
            why=f"it has {dimension} dimensions, and pgvector's index takes {MAX_DIMENSION:,}"
        )
    [(count,)] = await session.rows("SELECT count(*) FROM {indexes}")
    if count >= MAX_INDEX_COUNT:
        raise StoreFull(why=f"it has {count:,} indexes", advice="delete one that is not needed")
    if await session.rows(_NEW_INDEX, [write.index_id, write.fingerprint, dimension]):
        await session.rows(ITEMS, index_id=write.index_id, dimension=dimension)


async def _upserted(write: Upsert, session: Session) -> Sequence[Row]:
    """Writes the rows; returns id, modality and the modality of the item that it replaced."""
    values: list[object] = []
    for item in sorted(write.items, key=lambda each: each.item_id):
        # Sequences are given at the commit, so that writes need not wait for one another; a random
        # number tells this write of the item from all others as well.
        key = item_key(write.index_id, item.item_id)
        modality, attributes = MODALITIES.index(item.content.modality), exact(item.attributes)
        values += [item.item_id, modality, item.encoding.embedding, Jsonb(attributes)]
        values += pack_apart(key, item, secrets.randbits(63))
    rows = ", ".join(["(%s, %s, %s::vector, %s, %s, %s)"] * len(write.items))
    return await session.rows(_UPSERT, values, write.index_id, rows=rows)


async def _finished(values: Mapping[str, object], session: Session) -> Row:
    """Gives the changes their sequences, which have no gap; returns the last, and the rule."""
    rows = await session.rows(_FINISH, {**_NOTHING, **values})
    if not rows:  # It waited for the row, and so for a fence that came before.
        raise refused_by_fence()
    return rows[0]
