"""Stores one shard's items, their change log and each index's model: the source of truth.

Six databases in one LMDB environment, every value under a CRC:

    items          index_id NUL item_id  -> one record (item_record.py)
    contents       alias NUL item_id NUL digest -> a content that records name (item_contents.py)
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

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

import lmdb
import numpy as np
import numpy.typing as npt

from tandem.contract.content import Modality, content_bytes
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.search.item_changes import patched
from tandem.errors import (
    AttributeInvalid,
    IndexNotFound,
    ItemCorrupt,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.local.item_store.change_log import KEPT_CHANGE_COUNT, Change, ChangeLog
from tandem.local.item_store.environment import DEFAULT_MAP_BYTES as DEFAULT_MAP_BYTES
from tandem.local.item_store.files import (
    INDEX_PREFIX,
    SCHEMA_VERSION,
    ShardIdentity,
    StoreFiles,
)
from tandem.local.item_store.item_contents import ItemContents, StoredRecord, content_prefix
from tandem.local.item_store.item_record import (
    RecordView,
    attributes_json,
    item_key,
    pack_item,
)
from tandem.local.item_store.refused import StoreRefused
from tandem.local.item_store.request_log import KEPT_REQUEST_COUNT, RequestLog
from tandem.local.item_store.verdict import CheckDepth, verify_in_child
from tandem.local.item_store.write_fence import WriteFence
from tandem.stages.candidate_store import StoredContent, StoredTokens
from tandem.stages.index_info import IndexInfo
from tandem.stages.item_write import Committed, Delete, Drop, Fence, ItemWrite, Patch, Upsert
from tandem.stages.items import ItemRecord
from tandem.stages.notes import WRITER_PREFIX, Note, PutNote, SetWriter, WriterRule

DISK_FAULTS: tuple[type[Exception], ...] = (lmdb.Error, OSError)
"""Raised by reads and writes where the disk fails, or LMDB no longer trusts its state."""

_NOTE_PREFIX = "note/"
_SCAN_COUNT = 512
# Checksums of so much take about ten milliseconds: as long as a transaction may stay open.
_SCAN_BYTES = 16 << 20

_T = TypeVar("_T")
_Parse = Callable[[StoredRecord], _T]


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
        self._log = ChangeLog(files, kept_log_count)
        self._requests = RequestLog(files, kept_request_count)
        self._fence = WriteFence(files)
        self._contents = ItemContents(files)

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
        ServiceUnavailable while there is no store yet, or one of an older schema.
        """
        files = StoreFiles(
            path,
            ShardIdentity(shard_number, shard_count),
            readonly=readonly,
            map_bytes=map_bytes,
            allow_any_file_system=allow_any_file_system,
        )
        if files.schema_version < SCHEMA_VERSION:  # Records may name contents any moment.
            files.close()
            why = f"its item store at {path} is of an older release: index_svc upgrades it"
            raise ServiceUnavailable(service="index", why=why)
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
                key.removeprefix(INDEX_PREFIX) for key in self._files.meta_keys(txn, INDEX_PREFIX)
            ]

    def index_info(self, index_id: str) -> IndexInfo:
        """Returns the index's model and dimension; raises IndexNotFound."""
        with self.env.read() as txn:
            return self._index_info(txn, index_id)

    def item_ids(self, index_id: str, count: int, after: str = "", prefix: str = "") -> list[str]:
        """Returns the ids of the index's first items after that one, in byte order.

        Of those that begin with the prefix.
        """
        with self.env.read() as txn:
            return self._item_ids(txn, index_id, count, after, prefix)

    def read_items(
        self, index_id: str, item_ids: Sequence[str], max_bytes: float = math.inf
    ) -> list[ItemRecord | None]:
        """Returns the first items in the order of the ids, None where an item is missing.

        Reads at least one item, and others until the records and contents have `max_bytes`. Raises
        IndexNotFound, ItemCorrupt.
        """
        items: list[ItemRecord | None] = []
        left_bytes = max_bytes
        with self.env.read() as txn:
            self._index_info(txn, index_id)
            for item_id in item_ids:
                key = item_key(index_id, item_id)
                value = txn.get(key, db=self._files.items)
                stored = StoredRecord(self._files, txn, key, value or b"")
                item = None if value is None else stored.view().item()
                if items and stored.byte_count > left_bytes:
                    break
                left_bytes -= stored.byte_count
                items.append(item)
        return items

    def read_stored_tokens(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredTokens | None]:
        """Returns the items' tokens in the order of the ids, None where an item is missing.

        Raises IndexNotFound, ItemCorrupt.
        """
        return self._read(index_id, item_ids, _tokens)

    def read_stored_contents(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredContent | None]:
        """Returns the items' contents with their versions; errors as read_stored_tokens()."""
        return self._read(index_id, item_ids, _content)

    def read_versions(self, index_id: str, item_ids: Sequence[str]) -> list[int | None]:
        """Returns the items' versions in the order of the ids, None where an item is missing.

        Reads only the first bytes of each record. Raises IndexNotFound, ItemCorrupt.
        """
        return self._read(index_id, item_ids, StoredRecord.version)

    def read_embeddings(
        self, index_id: str, item_ids: Sequence[str]
    ) -> list[StoredEmbedding | ItemCorrupt | None]:
        """Returns what retrieval needs of the items, in the order of the ids.

        None where an item is missing, ItemCorrupt in place of a damaged one. Raises IndexNotFound.
        """
        return self._read(index_id, item_ids, _embedding)

    def scan_embeddings(self, index_id: str) -> Iterator[StoredEmbedding | ItemCorrupt]:
        """Yields the index's items by id, and ItemCorrupt in place of a damaged one."""
        return self._scan(index_id, _embedding)

    def scan_damaged(self, index_id: str) -> Iterator[tuple[str, ItemCorrupt]]:
        """Yields the ids of items whose records or contents fail their checksum.

        Reads each without copying it.
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
            return self._log.sequence(txn)

    def changes_since(self, sequence: int) -> Iterator[Change] | None:
        """Returns the changes after a sequence, oldest first.

        None where they are no longer all kept, or where the store never reached it. Raises
        ItemCorrupt while iterating, where the log is damaged.
        """
        with self.env.read() as txn:
            if not self._log.has_since(txn, sequence):
                return None
        return self._log.since(sequence)

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
            self._contents.move_out(writes)
            with self.env.write() as txn:
                outcomes = [self._apply_one(txn, write) for write in writes]
                if any(isinstance(write, Upsert | Patch) for write in writes):
                    self.env.check_reserve(txn, self._files.meta)
                return outcomes
        except lmdb.Error as error:
            if not self.env.is_full(error):
                raise
            if isinstance(error, lmdb.MapFullError) and self.env.grow():
                return self.apply(writes)
            if len(writes) == 1:
                return [StoreFull(why=str(error))]
        return [outcome for write in writes for outcome in self.apply([write])]

    def _apply_one(self, txn: lmdb.Transaction, write: ItemWrite) -> Committed | TandemError:
        try:
            if (answer := self._requests.answer(txn, write)) is not None:
                return answer
            if isinstance(write, Fence):
                return self._fence.put(txn, write, self._log.sequence(txn))
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
            case Patch():
                committed = self._patch(txn, write)
            case Delete():
                committed = self._delete(txn, write)
            case Drop():
                committed = self._drop(txn, write)
        self._requests.keep(txn, write, committed)
        return committed

    def _put_note(self, txn: lmdb.Transaction, write: PutNote | SetWriter) -> Committed:
        note = write.replacing(self._note(txn, write.key))
        self._files.put_meta(txn, _NOTE_PREFIX + note.key, [note.value, note.revision])
        return Committed(self._log.sequence(txn))

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
            self._files.put_meta(txn, INDEX_PREFIX + write.index_id, made)

    def _upsert(self, txn: lmdb.Transaction, write: Upsert) -> Committed:
        sequence = self._log.sequence(txn)
        for item in write.items:
            sequence += 1
            key = item_key(write.index_id, item.item_id)
            content = content_bytes(item.content)
            digest = self._contents.put(txn, write.index_id, item.item_id, content, sequence)
            # LMDB would leave a smaller record in the pages of one from this transaction, and its
            # verification takes that for damage.
            txn.delete(key, db=self._files.items)
            txn.put(key, pack_item(key, item, sequence, digest), db=self._files.items)
            prefix = content_prefix(write.index_id, item.item_id)
            self._contents.remove_unnamed(txn, prefix, digest)
            self._log.append(txn, Change(sequence, write.index_id, item.item_id, "upsert"))
        self._log.stand_at(txn, sequence)
        return Committed(sequence)

    def _patch(self, txn: lmdb.Transaction, write: Patch) -> Committed:
        sequence, failures = self._log.sequence(txn), {}
        for item_id, patches in write.by_item.items():
            key = item_key(write.index_id, item_id)
            if (value := txn.get(key, db=self._files.items)) is None:
                failures[item_id] = ""
                continue
            try:
                record = RecordView(item_id, key, value)
                old = record.attributes()
                attributes = patched(patches, old)
            except (AttributeInvalid, ItemCorrupt) as error:
                failures[item_id] = error.message
                continue
            if attributes_json(attributes) == attributes_json(old):
                continue
            sequence += 1
            changed = record.with_attributes(attributes, sequence)
            txn.delete(key, db=self._files.items)  # as for an upsert
            txn.put(key, changed, db=self._files.items)
            self._log.append(txn, Change(sequence, write.index_id, item_id, "upsert"))
        self._log.stand_at(txn, sequence)
        return Committed(sequence, failures=failures)

    def _delete(self, txn: lmdb.Transaction, write: Delete) -> Committed:
        before = sequence = self._log.sequence(txn)
        for item_id in write.item_ids:
            if txn.delete(item_key(write.index_id, item_id), db=self._files.items):
                sequence += 1
                self._contents.remove_unnamed(txn, content_prefix(write.index_id, item_id))
                self._log.append(txn, Change(sequence, write.index_id, item_id, "delete"))
        self._log.stand_at(txn, sequence)
        return Committed(sequence, deleted_count=sequence - before)

    def _drop(self, txn: lmdb.Transaction, write: Drop) -> Committed:
        sequence = self._log.sequence(txn)
        if self._item_ids(txn, write.index_id, 1):
            return Committed(sequence)
        sequence += 1
        self._files.delete_meta(txn, INDEX_PREFIX + write.index_id)
        self._log.append(txn, Change(sequence, write.index_id, "", "drop"))
        self._log.stand_at(txn, sequence)
        return Committed(sequence, is_dropped=True)

    def _item_ids(
        self, txn: lmdb.Transaction, index_id: str, count: int, after: str = "", begin: str = ""
    ) -> list[str]:
        start, prefix = item_key(index_id, ""), item_key(index_id, begin)
        # The first key that is larger: no id has a NUL.
        first = max(prefix, item_key(index_id, f"{after}\0") if after else prefix)
        item_ids: list[str] = []
        with txn.cursor(self._files.items) as cursor:
            found = cursor.set_range(first)
            while found and len(item_ids) < count:
                key = bytes(cursor.key())
                if not key.startswith(prefix):
                    break
                item_ids.append(key.removeprefix(start).decode())
                found = cursor.next()
        return item_ids

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
                item = StoredRecord(self._files, txn, key, cursor.value())
                batch.append(parse(item))
                left_bytes -= item.byte_count
                found = cursor.next()
        return batch, None

    def _read(self, index_id: str, item_ids: Sequence[str], parse: _Parse[_T]) -> list[_T | None]:
        with self.env.read() as txn:
            self._index_info(txn, index_id)
            parts: list[_T | None] = []
            for item_id in item_ids:
                key = item_key(index_id, item_id)
                value = txn.get(key, db=self._files.items)
                if value is None:
                    parts.append(None)
                else:
                    parts.append(parse(StoredRecord(self._files, txn, key, value)))
            return parts

    def _index_info(self, txn: lmdb.Transaction, index_id: str) -> IndexInfo:
        stored = self._files.get_meta(txn, INDEX_PREFIX + index_id)
        if stored is None:
            raise IndexNotFound(index_id=index_id)
        return IndexInfo(*stored)


def _tokens(item: StoredRecord) -> StoredTokens:
    view = item.view()
    return StoredTokens(view.tokens(), view.version)


def _content(item: StoredRecord) -> StoredContent:
    view = item.view()
    return StoredContent(view.content(), view.version)


def _embedding(item: StoredRecord) -> StoredEmbedding | ItemCorrupt:
    try:
        view = item.view_whole()
    except ItemCorrupt as error:
        return error
    return StoredEmbedding(
        item.item_id, view.modality, view.embedding(), view.attributes(), view.text()
    )


def _damage(item: StoredRecord) -> tuple[str, ItemCorrupt] | None:
    try:
        item.view_whole()
    except ItemCorrupt as error:
        return item.item_id, error
    return None
