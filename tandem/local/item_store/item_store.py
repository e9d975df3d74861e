"""Stores one shard's items, their change log and each index's model: the source of truth.

Five databases in one LMDB environment, every value under a CRC:

    items          index_id NUL item_id  -> one record (item_record.py)
    log            sequence, big-endian  -> JSON [operation, index_id, item_id], the newest million;
                                            without item_id where an index was dropped
    meta           "schema"              -> schema version, and which shard of how many this is
                   "store_id"            -> random, another after each restore
                   "sequence"            -> where the change log stands
                   "index/" index_id     -> fingerprint and dimension, set by the first upsert
                   "note/" key          -> a note and its revision (stages/notes.py)
                   "sealed"              -> true once its items are on other shards (write_fence.py)
    requests       request id            -> the answer to the write (request_log.py)
    request_order  number, big-endian    -> request id, oldest first

One process writes (index_svc, from one thread); other processes read the same files. Read
transactions copy data out and end within milliseconds: an open one keeps LMDB from reusing any page
freed since it began.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import lmdb
import numpy as np
import numpy.typing as npt

from tandem.contract.content import Modality
from tandem.contract.filtering.attributes import Attributes
from tandem.errors import (
    IndexNotFound,
    ItemCorrupt,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.local.item_store.change_log import (
    KEPT_CHANGE_COUNT,
    Change,
    Operation,
    append_change,
    first_sequence,
    read_changes,
)
from tandem.local.item_store.environment import DEFAULT_MAP_BYTES as DEFAULT_MAP_BYTES
from tandem.local.item_store.files import ShardIdentity, StoreFiles
from tandem.local.item_store.item_record import RecordView, item_key, item_version, pack_item
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.request_log import KEPT_REQUEST_COUNT, RequestLog
from tandem.local.item_store.verdict import CheckDepth, verify_in_child
from tandem.local.item_store.write_fence import WriteFence
from tandem.stages.candidate_store import StoredContent, StoredTokens
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Delete, Drop, Fence, ItemWrite, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.notes import WRITER_PREFIX, Note, PutNote, SetWriter, WriterRule

DISK_FAULTS: tuple[type[Exception], ...] = (lmdb.Error, OSError)
"""Raised by reads and writes where the disk fails, or LMDB no longer trusts its state."""

_SEQUENCE_KEY = "sequence"
_INDEX_PREFIX = "index/"
_NOTE_PREFIX = "note/"
_SCAN_COUNT = 512
# Checksums of so much take about ten milliseconds: as long as a transaction may stay open.
_SCAN_BYTES = 16 << 20
# A delete of 256 scattered items rewrites at most some 800 pages of 4 KiB, merged ones included.
_RESERVE_BYTES = 4 << 20
_PAGEFUL = bytes(4000)

_T = TypeVar("_T")
_Parse = Callable[[str, bytes, bytes | memoryview], _T]
"""Makes something of an item's id, its key and its record."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredEmbedding:
    """Holds what retrieval needs of one item."""

    item_id: str
    modality: Modality
    embedding: npt.NDArray[np.float32]
    attributes: Attributes = field(default_factory=dict)
    text: str = ""
    """The content of a text; empty for a picture."""


class ItemStore:
    """Reads and writes one shard's items: reads are safe from any thread, writes from one."""

    def __init__(self, files: StoreFiles, kept_log_count: int, kept_request_count: int) -> None:
        """Takes over the files; open() is the usual way."""
        self.env = files.env
        self._files = files
        self._kept_log_count = kept_log_count
        self._requests = RequestLog(files, kept_request_count)
        self._fence = WriteFence(files)

    @classmethod
    def open(
        cls,
        path: Path,
        shard_number: int,
        shard_count: int,
        readonly: bool = False,
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        kept_log_count: int = KEPT_CHANGE_COUNT,
        kept_request_count: int = KEPT_REQUEST_COUNT,
        allow_any_file_system: bool = False,
    ) -> Self:
        """Opens the shard's store; without readonly, creates it or upgrades an older schema.

        At most once per path in a process. Raises StoreRefused as StoreFiles does; with readonly,
        ServiceUnavailable while there is no store yet.
        """
        files = StoreFiles(
            path,
            ShardIdentity(shard_number, shard_count),
            readonly=readonly,
            map_bytes=map_bytes,
            allow_any_file_system=allow_any_file_system,
        )
        return cls(files, kept_log_count, kept_request_count)

    @property
    def identity(self) -> ShardIdentity:
        """Returns which shard of how many this is."""
        return self._files.identity

    @property
    def store_id(self) -> str:
        """Returns a random name of this store's history, which each restore changes."""
        return self._files.store_id

    def close(self) -> None:
        self._files.close()

    def index_ids(self) -> list[str]:
        """Returns the ids of this shard's indexes, sorted."""
        with self.env.read() as txn:
            return [
                key.removeprefix(_INDEX_PREFIX) for key in self._files.meta_keys(txn, _INDEX_PREFIX)
            ]

    def index_info(self, index_id: str) -> IndexInfo:
        """Returns the index's model and dimension; raises IndexNotFound."""
        with self.env.read() as txn:
            return self._index_info(txn, index_id)

    def item_ids(self, index_id: str, count: int, after: str = "") -> list[str]:
        """Returns the ids of the index's first items after that one, in byte order."""
        with self.env.read() as txn:
            return self._item_ids(txn, index_id, count, after)

    def read_items(self, index_id: str, item_ids: Sequence[str]) -> list[ItemRecord | None]:
        """Returns the items in the order of the ids, None where an item is missing.

        Raises IndexNotFound, ItemCorrupt.
        """
        return self._read(index_id, item_ids, _stored_item)

    def read_items_within(
        self, index_id: str, item_ids: Sequence[str], max_bytes: int
    ) -> tuple[list[ItemRecord | None], int]:
        """Reads as read_items() until max_bytes are reached; returns the items and their number.

        Reads at least one item, and counts the bytes of the records. Errors as read_items.
        """
        items: list[ItemRecord | None] = []
        left_bytes = max_bytes
        with self.env.read() as txn:
            self._index_info(txn, index_id)
            for item_id in item_ids:
                key = item_key(index_id, item_id)
                value = txn.get(key, db=self._files.items)
                byte_count = 0 if value is None else len(value)
                if items and byte_count > left_bytes:
                    break
                left_bytes -= byte_count
                items.append(None if value is None else _stored_item(item_id, key, value))
        return items, len(items)

    def read_stored_tokens(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredTokens | None]:
        """Returns the items' tokens in the order of the ids, None where an item is missing.

        Raises IndexNotFound, ItemCorrupt.
        """
        return self._read(index_id, item_ids, _stored_tokens)

    def read_stored_contents(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredContent | None]:
        """Returns the items' contents with their versions; errors as read_stored_tokens()."""
        return self._read(index_id, item_ids, _stored_content)

    def read_versions(self, index_id: str, item_ids: Sequence[str]) -> list[int | None]:
        """Returns the items' versions in the order of the ids, None where an item is missing.

        Reads only the first bytes of each record. Raises IndexNotFound, ItemCorrupt.
        """
        return self._read(index_id, item_ids, item_version)

    def read_embeddings(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredEmbedding | ItemCorrupt | None]:
        """Returns what retrieval needs of the items, in the order of the ids.

        None where an item is missing, ItemCorrupt in place of a damaged one. Raises IndexNotFound.
        """
        return self._read(index_id, item_ids, _stored_embedding)

    def scan_embeddings(self, index_id: str) -> Iterator[StoredEmbedding | ItemCorrupt]:
        """Yields the index's items by id, and ItemCorrupt in place of a damaged one."""
        return self._scan(index_id, _stored_embedding)

    def scan_damaged(self, index_id: str) -> Iterator[tuple[str, ItemCorrupt]]:
        """Yields the ids of items whose records fail their checksum.

        Reads each record without copying it.
        """
        return filter(None, self._scan(index_id, _damage))

    def notes(self, prefix: str) -> list[Note]:
        """Returns the notes whose keys begin so, by key."""
        with self.env.read() as txn:
            keys = self._files.meta_keys(txn, _NOTE_PREFIX + prefix)
            found = [self._note(txn, key.removeprefix(_NOTE_PREFIX)) for key in keys]
        return [note for note in found if note is not None]

    def sequence(self) -> int:
        """Returns the number of changes so far, which is where the change log stands."""
        with self.env.read() as txn:
            return self._sequence(txn)

    def changes_since(self, sequence: int) -> Iterator[Change] | None:
        """Returns the changes after a sequence, oldest first.

        None where they are no longer all kept, or where the store never reached it. Raises
        ItemCorrupt while iterating, where the log is damaged.
        """
        with self.env.read() as txn:
            newest, first = self._sequence(txn), first_sequence(txn, self._files.log)
        if not 0 <= sequence <= newest or (sequence < newest and (first or 0) > sequence + 1):
            return None
        return self._changes(sequence + 1)

    def reopen(self) -> None:
        """Closes, checks and reopens the files, as is necessary after one of DISK_FAULTS.

        Reads wait meanwhile. Raises ServiceUnavailable, as do all reads and writes until a call
        succeeds.
        """
        try:
            self.env.reopen(self._check_sound)
        except StoreRefused as error:
            raise ServiceUnavailable(service="index", why=str(error)) from error

    def _check_sound(self) -> None:
        # In a child process: reading a damaged page may kill the process.
        if damage := verify_in_child(self._files.path, CheckDepth.WALK).damage:
            raise StoreRefused(
                f"{self._files.path} is damaged ({damage[0]}): restore it from a backup"
            )

    def apply(self, writes: Sequence[ItemWrite]) -> list[Committed | TandemError]:
        """Commits the writes in order, in one transaction, each wholly or not at all.

        Returns once they are on disk. A write that breaks a rule is left out, and its error
        stands in its place: ModelMismatch, EmbeddingInvalid (not the index's dimension),
        IndexNotFound (a delete), RequestIdReused. Where disk or map are full the writes are tried
        one by one, so that only those too large for the rest get StoreFull. Raises DISK_FAULTS on
        any other fault of the disk: its contents are then unknown, and reopen() must come next.
        """
        try:
            with self.env.write() as txn:
                outcomes = [self._apply_one(txn, write) for write in writes]
                if any(isinstance(write, Upsert) for write in writes):
                    self._check_reserve(txn)
                return outcomes
        except lmdb.Error as error:
            if not self.env.is_full(error):
                raise
            if isinstance(error, lmdb.MapFullError) and self.env.grow():
                return self.apply(writes)
            if len(writes) == 1:
                return [StoreFull(why=str(error))]
        return [outcome for write in writes for outcome in self.apply([write])]

    def _check_reserve(self, txn: lmdb.Transaction) -> None:
        """Raises lmdb.MapFullError where the transaction would leave too little room for a delete.

        A delete copies changed pages before it frees the old ones, so on a completely full map
        nothing could be deleted. LMDB does not report how many pages are free, so this takes them
        in a nested transaction and aborts that.
        """
        map_bytes = self.env.map_bytes()
        if self.env.used_bytes() < map_bytes // 2:  # the usual case
            return
        reserve_bytes = min(_RESERVE_BYTES, map_bytes // 4)
        with self.env.rehearse(txn) as rehearsal:
            for number in range(reserve_bytes // 4096):
                rehearsal.put(b"reserve/%d" % number, _PAGEFUL, db=self._files.meta)

    def _apply_one(self, txn: lmdb.Transaction, write: ItemWrite) -> Committed | TandemError:
        try:
            if (answer := self._requests.answer(txn, write)) is not None:
                return answer
            if isinstance(write, Fence):
                return self._fence.put(txn, write, self._sequence(txn))
            self._fence.check(txn)
            if isinstance(write, PutNote | SetWriter):
                return self._put_note(txn, write)
            if not isinstance(write, Drop):
                rule = self._note(txn, WRITER_PREFIX + write.index_id)
                WriterRule.of(rule).check(write.index_id, write.term)
            if isinstance(write, Upsert):
                self._admit(txn, write)
            else:
                self._index_info(txn, write.index_id)
        except TandemError as error:  # nothing of this write is in the transaction yet
            return error
        match write:
            case Upsert():
                committed = self._upsert(txn, write)
            case Delete():
                committed = self._delete(txn, write)
            case Drop():
                committed = self._drop(txn, write)
        self._requests.keep(txn, write, committed)
        return committed

    def _put_note(self, txn: lmdb.Transaction, write: PutNote | SetWriter) -> Committed:
        note = write.replacing(self._note(txn, write.key))
        self._files.put_meta(txn, _NOTE_PREFIX + note.key, [note.value, note.revision])
        return Committed(self._sequence(txn))

    def _note(self, txn: lmdb.Transaction, key: str) -> Note | None:
        stored = self._files.get_meta(txn, _NOTE_PREFIX + key)
        return None if stored is None else Note(key, *stored)

    def _admit(self, txn: lmdb.Transaction, write: Upsert) -> None:
        """Checks the write against its index, which it creates if it is missing."""
        embedding = write.items[0].encoding.embedding
        try:
            self._index_info(txn, write.index_id).check(write.fingerprint, [embedding])
        except IndexNotFound:
            made = [write.fingerprint, len(embedding)]
            self._files.put_meta(txn, _INDEX_PREFIX + write.index_id, made)

    def _upsert(self, txn: lmdb.Transaction, write: Upsert) -> Committed:
        sequence = self._sequence(txn)
        for item in write.items:
            sequence += 1
            key = item_key(write.index_id, item.item_id)
            txn.put(key, pack_item(key, item, sequence), db=self._files.items)
            self._log(txn, sequence, "upsert", write.index_id, item.item_id)
        self._files.put_meta(txn, _SEQUENCE_KEY, sequence)
        return Committed(sequence)

    def _delete(self, txn: lmdb.Transaction, write: Delete) -> Committed:
        before = sequence = self._sequence(txn)
        for item_id in write.item_ids:
            if txn.delete(item_key(write.index_id, item_id), db=self._files.items):
                sequence += 1
                self._log(txn, sequence, "delete", write.index_id, item_id)
        self._files.put_meta(txn, _SEQUENCE_KEY, sequence)
        return Committed(sequence, deleted_count=sequence - before)

    def _drop(self, txn: lmdb.Transaction, write: Drop) -> Committed:
        sequence = self._sequence(txn)
        if self._item_ids(txn, write.index_id, 1):
            return Committed(sequence)
        sequence += 1
        self._files.delete_meta(txn, _INDEX_PREFIX + write.index_id)
        self._log(txn, sequence, "drop", write.index_id, item_id="")
        self._files.put_meta(txn, _SEQUENCE_KEY, sequence)
        return Committed(sequence, is_dropped=True)

    def _item_ids(
        self, txn: lmdb.Transaction, index_id: str, count: int, after: str = ""
    ) -> list[str]:
        prefix = item_key(index_id, "")
        item_ids: list[str] = []
        with txn.cursor(self._files.items) as cursor:
            # The first key that is larger: no id has a NUL.
            found = cursor.set_range(item_key(index_id, f"{after}\0") if after else prefix)
            while found and len(item_ids) < count:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    break
                item_ids.append(key.removeprefix(prefix).decode())
                found = cursor.next()
        return item_ids

    def _log(
        self,
        txn: lmdb.Transaction,
        sequence: int,
        operation: Operation,
        index_id: str,
        item_id: str,
    ) -> None:
        change = Change(sequence, index_id, item_id, operation)
        append_change(txn, self._files.log, change, self._kept_log_count)

    def _changes(self, start: int) -> Iterator[Change]:
        while True:
            with self.env.read() as txn:
                changes = read_changes(txn, self._files.log, start, _SCAN_COUNT)
            if not changes:
                return
            yield from changes
            start += len(changes)

    def _scan(self, index_id: str, parse: _Parse[_T]) -> Iterator[_T]:
        """Yields what `parse` makes of each record, by id."""
        start: bytes | None = item_key(index_id, "")
        while start is not None:
            # One transaction per batch, so that a scan of millions holds no page back for long.
            batch, start = self._batch(item_key(index_id, ""), start, parse)
            yield from batch

    def _batch(
        self, prefix: bytes, start: bytes, parse: _Parse[_T]
    ) -> tuple[list[_T], bytes | None]:
        """Reads a batch from a key on; returns it and the next key, None at the end."""
        batch: list[_T] = []
        left_bytes = _SCAN_BYTES
        with self.env.read() as txn, txn.cursor(self._files.items) as cursor:
            found = cursor.set_range(start)
            while found and (key := bytes(cursor.key())).startswith(prefix):
                if len(batch) == _SCAN_COUNT or left_bytes <= 0:
                    return batch, key
                value = cursor.value()
                left_bytes -= len(value)
                batch.append(parse(key.removeprefix(prefix).decode(), key, value))
                found = cursor.next()
        return batch, None

    def _read(self, index_id: str, item_ids: Sequence[str], parse: _Parse[_T]) -> list[_T | None]:
        with self.env.read() as txn:
            self._index_info(txn, index_id)
            parts: list[_T | None] = []
            for item_id in item_ids:
                key = item_key(index_id, item_id)
                value = txn.get(key, db=self._files.items)
                parts.append(None if value is None else parse(item_id, key, value))
            return parts

    def _index_info(self, txn: lmdb.Transaction, index_id: str) -> IndexInfo:
        stored = self._files.get_meta(txn, _INDEX_PREFIX + index_id)
        if stored is None:
            raise IndexNotFound(index_id=index_id)
        return IndexInfo(*stored)

    def _sequence(self, txn: lmdb.Transaction) -> int:
        return int(self._files.get_meta(txn, _SEQUENCE_KEY) or 0)


def _stored_item(item_id: str, key: bytes, value: bytes | memoryview) -> ItemRecord:
    return RecordView(item_id, key, value).item()


def _stored_tokens(item_id: str, key: bytes, value: bytes | memoryview) -> StoredTokens:
    record = RecordView(item_id, key, value)
    return StoredTokens(record.tokens(), record.version)


def _stored_content(item_id: str, key: bytes, value: bytes | memoryview) -> StoredContent:
    record = RecordView(item_id, key, value)
    return StoredContent(record.content(), record.version)


def _stored_embedding(
    item_id: str, key: bytes, value: bytes | memoryview
) -> StoredEmbedding | ItemCorrupt:
    try:
        record = RecordView(item_id, key, value)
    except ItemCorrupt as error:
        return error
    return StoredEmbedding(
        item_id, record.modality, record.embedding(), record.attributes(), record.text()
    )


def _damage(item_id: str, key: bytes, value: bytes | memoryview) -> tuple[str, ItemCorrupt] | None:
    try:
        RecordView(item_id, key, value)
    except ItemCorrupt as error:
        return item_id, error
    return None
