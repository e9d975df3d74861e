"""Packs what a store gained and lost since a sequence, and applies that to an older copy of it.

A change set is a sequence of entries in pieces of bytes. An entry puts a value, or removes: an item
or answer with that key, everything before that key in the two databases whose keys are numbers, or
all of `meta`, which is small and always complete. Values keep their checksums. Contents that no
record names any more are removed after the last piece.
"""

import json
import struct
from collections.abc import Generator, Iterator
from typing import Any

import lmdb

from tandem.errors import ItemCorrupt
from tandem.local.item_store.change_log import Change, ChangeLog, cursor_change
from tandem.local.item_store.checksum import ChecksumMismatch, unseal
from tandem.local.item_store.files import StoreFiles
from tandem.local.item_store.item_contents import ItemContents, content_prefix, is_stored_by
from tandem.local.item_store.item_record import RecordView, item_key
from tandem.local.item_store.refused import StoreRefused

_NAMES = ("meta", "log", "items", "request_order", "requests", "contents")
# Number of the database, lengths of key and value; -1 removes.
_HEADER = struct.Struct("<BIi")

_Entry = tuple[str, bytes, bytes | memoryview | None]


def pack_changes(
    files: StoreFiles, txn: lmdb.Transaction, sequence: int, piece_bytes: int
) -> Generator[bytes, None, None]:
    """Yields the changes after the sequence in pieces of about that size.

    Raises StoreRefused where a changed value is damaged.
    """
    piece = bytearray()
    try:
        for name, key, value in _entries(files, txn, sequence):
            length = -1 if value is None else len(value)
            piece += _HEADER.pack(_NAMES.index(name), len(key), length) + key + (value or b"")
            if len(piece) >= piece_bytes:
                yield bytes(piece)
                piece.clear()
    except (ItemCorrupt, ChecksumMismatch) as error:
        raise StoreRefused(f"{files.path} is damaged: {error}") from error
    if piece:
        yield bytes(piece)


def apply_changes(files: StoreFiles, piece: bytes) -> None:
    """Applies one piece in one transaction; the pieces of a change set come in order."""
    with files.env.write() as txn:
        start = 0
        while start < len(piece):
            number, key_length, length = _HEADER.unpack_from(piece, start)
            key_end = start + _HEADER.size + key_length
            key, start = piece[start + _HEADER.size : key_end], key_end + max(length, 0)
            database = getattr(files, _NAMES[number])
            if length >= 0:
                txn.put(key, piece[key_end:start], db=database)
            elif _NAMES[number] == "meta":
                txn.drop(database, delete=False)
            elif _NAMES[number] == "items":
                txn.delete(key, db=database)
            else:
                _remove_before(files, txn, database, key)


def _entries(files: StoreFiles, txn: lmdb.Transaction, sequence: int) -> Iterator[_Entry]:
    yield "meta", b"", None
    for key, value in txn.cursor(files.meta):
        yield "meta", bytes(key), value
    if (first := ChangeLog(files).first(txn)) is not None:
        yield "log", first.to_bytes(8, "big"), None
    with txn.cursor(files.log) as cursor:
        found = cursor.set_range((sequence + 1).to_bytes(8, "big"))
        while found:
            yield "log", bytes(cursor.key()), cursor.value()
            change = cursor_change(cursor)
            key = item_key(change.index_id, change.item_id)
            record = txn.get(key, db=files.items)
            # A later change of the same item brings its record.
            if (
                record is None
                or RecordView(change.item_id, key, record).sequence == change.sequence
            ):
                yield "items", key, record
            yield from _content_entries(files, txn, change)
            found = cursor.next()
    with txn.cursor(files.request_order) as cursor:
        if cursor.first():
            yield "request_order", bytes(cursor.key()), None
        found = cursor.last()
        while found:
            request_id = bytes(unseal(bytes(cursor.key()), cursor.value()))
            answer = txn.get(request_id, b"", db=files.requests)
            # Answers of writes that changed nothing have the sequence before them.
            if json.loads(bytes(unseal(request_id, answer)))[1] < sequence:
                return
            yield "request_order", bytes(cursor.key()), cursor.value()
            yield "requests", request_id, answer
            found = cursor.prev()


def _content_entries(files: StoreFiles, txn: lmdb.Transaction, change: Change) -> Iterator[_Entry]:
    """Yields the contents that the change stored, or that were moved out of the item's records."""
    contents = ItemContents(files)
    for key in contents.keys(txn, content_prefix(change.index_id, change.item_id)):
        value = txn.get(key, b"", db=files.contents)
        if is_stored_by(change.sequence, value):
            unseal(key, value)
            yield "contents", key, value
            for other, record in contents.records_naming(txn, key):
                if other != item_key(change.index_id, change.item_id):
                    yield "items", other, record


def _remove_before(
    files: StoreFiles,
    txn: lmdb.Transaction,
    database: Any,  # noqa: ANN401  py-lmdb does not export its type
    end: bytes,
) -> None:
    with txn.cursor(database) as cursor:
        found = cursor.first()
        while found and (key := bytes(cursor.key())) < end:
            if database is files.request_order:
                txn.delete(bytes(unseal(key, cursor.value())), db=files.requests)
            found = cursor.delete() and bool(cursor.key())
