"""Stores the contents that records name, once for all generations of an alias.

    key = alias NUL item_id NUL digest
    value = CRC32 | sequence of the change that stored it | content

So a generation that lags behind still reads the content that its encoding was made of. A content
goes with the last record that names it.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress

import lmdb

from tandem.contract.content import content_bytes
from tandem.contract.generation_ids import alias_of
from tandem.errors import ItemCorrupt
from tandem.local.item_store.checksum import CHECKSUM_BYTES, ChecksumMismatch, seal, unseal
from tandem.local.item_store.files import INDEX_PREFIX, StoreFiles
from tandem.local.item_store.item_record import (
    DIGEST_BYTES,
    RecordView,
    item_key,
    item_version,
    named_digest,
    pack_item,
)
from tandem.stages.item_write import ItemWrite, Upsert

APART_BYTES = 1024
"""From this size on contents are stored apart: a caption takes less than an embedding, and a scan
for words would look it up for every item."""

_SEQUENCE = struct.Struct("<Q")
# Of a content that was moved out of a record, of which the change log says nothing.
_NO_CHANGE = 0
_MOVED_BYTES = 512 << 10

_KeyValue = tuple[bytes, bytes | memoryview]


class StoredRecord:
    """Views an item's record, with its content, until the transaction ends."""

    def __init__(
        self, files: StoreFiles, txn: lmdb.Transaction, key: bytes, value: bytes | memoryview
    ) -> None:
        self._files, self._txn = files, txn
        self._key, self._value = key, value
        self._index_id, _, self.item_id = key.decode(errors="replace").partition("\0")
        self.byte_count = len(value)
        """With the content once that is read."""

    def version(self) -> int:
        """Returns the item's version; reads the record's first bytes, unverified."""
        return item_version(self.item_id, self._value)

    def view(self) -> RecordView:
        """Returns the record, verified; raises ItemCorrupt."""
        return RecordView(self.item_id, self._key, self._value, self._read_content)

    def view_whole(self) -> RecordView:
        """Returns the record, verified with its content; raises ItemCorrupt."""
        view = self.view()
        view.stored_content()
        return view

    def _read_content(self, digest: bytes) -> memoryview:
        key = content_prefix(self._index_id, self.item_id) + digest
        value = self._txn.get(key, b"", db=self._files.contents)
        self.byte_count += len(value)
        try:
            return unseal(key, value)[_SEQUENCE.size :]
        except ChecksumMismatch as error:
            why = f"its content: {error}" if value else "its content is missing"
            raise ItemCorrupt(item_id=self.item_id, why=why) from error


class ItemContents:
    """Writes contents within the transactions of their records."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files

    def put(
        self, txn: lmdb.Transaction, index_id: str, item_id: str, content: bytes, sequence: int
    ) -> bytes:
        """Stores a content unless it is there; returns the digest by which the record names it.

        Returns no digest for a content that the record is to hold.
        """
        if len(content) < APART_BYTES:
            return b""
        digest = hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
        key = content_prefix(index_id, item_id) + digest
        try:
            unseal(key, txn.get(key, b"", db=self._files.contents))
        except ChecksumMismatch:
            value = seal(key, _SEQUENCE.pack(sequence) + content)
            txn.put(key, value, db=self._files.contents)
        return digest

    def move_out(self, writes: Sequence[ItemWrite]) -> None:
        """Moves contents of the writes out of records of an earlier release that hold them.

        In transactions of few bytes, because LMDB uses freed pages again after two more. Raises
        lmdb.MapFullError where there is no room for them.
        """
        env = self._files.env
        with env.read() as txn:
            holding = self._holding(txn, writes)
        while holding:
            with env.write() as txn:
                left_bytes = _MOVED_BYTES
                while holding and left_bytes > 0:
                    key, content = holding.pop()
                    self._move(txn, key, content)
                    left_bytes -= len(content)
                env.check_reserve(txn, self._files.meta)

    def remove_unnamed(
        self, txn: lmdb.Transaction, prefix: bytes = b"", named: bytes = b""
    ) -> None:
        """Removes the contents that no record names; a record names that digest."""
        keys = (key for key in self.keys(txn, prefix) if key[-DIGEST_BYTES:] != named)
        for key in [key for key in keys if not self.records_naming(txn, key)]:
            txn.delete(key, db=self._files.contents)

    def keys(self, txn: lmdb.Transaction, prefix: bytes = b"") -> Iterator[bytes]:
        """Yields the keys that begin with the prefix."""
        with txn.cursor(self._files.contents) as cursor:
            found = cursor.set_range(prefix)
            while found and (key := bytes(cursor.key())).startswith(prefix):
                yield key
                found = cursor.next()

    def records_naming(self, txn: lmdb.Transaction, key: bytes) -> list[_KeyValue]:
        """Returns keys and values of the records that name the content under the key."""
        alias, item_id, digest = key.split(b"\0", 2)
        index_ids = (alias.decode(), *self._others(txn, alias.decode()))
        records = self._records(txn, index_ids, item_id.decode())
        return [each for each in records if named_digest(each[1]) == digest]

    def _holding(
        self, txn: lmdb.Transaction, writes: Sequence[ItemWrite]
    ) -> list[tuple[bytes, bytes]]:
        """Returns keys of other generations' records that may hold contents of the writes.

        They are of an earlier release. Each key comes with the content.
        """
        found = []
        for write in writes:
            if isinstance(write, Upsert) and (others := self._others(txn, write.index_id)):
                for item in write.items:
                    content = content_bytes(item.content)
                    for key, value in self._records(txn, others, item.item_id):
                        if APART_BYTES <= len(content) < len(value) and not named_digest(value):
                            found.append((key, content))
        return found

    def _move(self, txn: lmdb.Transaction, key: bytes, content: bytes) -> None:
        """Moves the content out of the record under the key if it holds it."""
        index_id, _, item_id = key.decode().partition("\0")
        with suppress(ItemCorrupt):  # left for its own repair
            record = RecordView(item_id, key, txn.get(key, b"", db=self._files.items))
            if record.stored_content() == content:
                digest = self.put(txn, index_id, item_id, content, _NO_CHANGE)
                named = pack_item(key, record.item(), record.sequence, digest)
                txn.put(key, named, db=self._files.items)

    def _others(self, txn: lmdb.Transaction, index_id: str) -> Sequence[str]:
        """Returns the other generations of the index's alias."""
        alias = alias_of(index_id)
        later = self._files.meta_keys(txn, f"{INDEX_PREFIX}{alias}@")
        known = (alias, *(key.removeprefix(INDEX_PREFIX) for key in later))
        return [each for each in known if each != index_id]

    def _records(
        self, txn: lmdb.Transaction, index_ids: Sequence[str], item_id: str
    ) -> Iterator[_KeyValue]:
        for key in (item_key(each, item_id) for each in index_ids):
            if (value := txn.get(key, db=self._files.items)) is not None:
                yield key, value


def is_stored_by(sequence: int, value: bytes | memoryview) -> bool:
    """Returns whether that change may have stored the content; verifies nothing."""
    return _SEQUENCE.unpack_from(value, CHECKSUM_BYTES)[0] in (sequence, _NO_CHANGE)


def content_prefix(index_id: str, item_id: str) -> bytes:
    """Returns how the keys of an item's contents begin."""
    return item_key(alias_of(index_id), item_id) + b"\0"
