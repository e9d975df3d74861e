"""Keeps the answers to the last writes with a request id, so that a repeat gets the same answer.

Of its two databases, `requests` has the answers by request id, and `request_order` the ids in
order, to know which to forget.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import lmdb

from tandem.contract.content import content_bytes
from tandem.contract.generation_ids import alias_of
from tandem.errors import ItemCorrupt, RequestIdReused
from tandem.local.item_store.checksum import ChecksumMismatch, seal, unseal
from tandem.local.item_store.files import StoreFiles, seal_json
from tandem.local.item_store.item_record import attributes_json
from tandem.stages.item_write import Committed, Delete, ItemWrite, Patch, Upsert

KEPT_REQUEST_COUNT = 100_000

_LENGTH = struct.Struct("<Q")


class RequestLog:
    """Reads and keeps answers by request id, in the transaction of the write itself."""

    def __init__(self, files: StoreFiles, kept_count: int) -> None:
        """Takes the files with the two databases, and how many answers to keep."""
        self._files = files
        self._kept_count = kept_count

    def answer(self, txn: lmdb.Transaction, write: ItemWrite) -> Committed | None:
        """Returns the answer to the write if it was stored before under its request id, else None.

        Raises RequestIdReused where another write had the id, ItemCorrupt.
        """
        if not write.request_id:
            return None
        key = write.request_id.encode()
        value = txn.get(key, db=self._files.requests)
        if value is None:
            return None
        return repeated(write, *json.loads(_unsealed(key, value)))

    def keep(self, txn: lmdb.Transaction, write: ItemWrite, committed: Committed) -> None:
        """Keeps the answer, and forgets the oldest where there are too many."""
        if not write.request_id:
            return
        key = write.request_id.encode()
        answer = kept_answer(write, committed)
        txn.put(key, seal_json(key, answer), db=self._files.requests)
        with txn.cursor(self._files.request_order) as cursor:
            number = int.from_bytes(cursor.key()) + 1 if cursor.last() else 1
            cursor.put(_number_key(number), seal(_number_key(number), key), append=True)
        self._forget(txn, number - self._kept_count)

    def _forget(self, txn: lmdb.Transaction, number: int) -> None:
        if number < 1:
            return
        value = txn.pop(_number_key(number), db=self._files.request_order)
        if value is not None:
            txn.delete(_unsealed(_number_key(number), value), db=self._files.requests)


def _number_key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unsealed(key: bytes, value: bytes | memoryview) -> bytes:
    try:
        return bytes(unseal(key, value))
    except ChecksumMismatch as error:
        raise ItemCorrupt(item_id=f"(request {key!a})", why=str(error)) from error


def kept_answer(write: ItemWrite, committed: Committed) -> Sequence[object]:
    """Returns what is kept of an answer, as `repeated` takes it."""
    failures = [dict(committed.failures)] if committed.failures else []
    return [write_digest(write), committed.sequence, committed.deleted_count, *failures]


def repeated(
    write: ItemWrite,
    digest: str,
    sequence: int,
    deleted_count: int,
    failures: Mapping[str, str] = MappingProxyType({}),
) -> Committed:
    """Returns the answer that is kept for the write; raises RequestIdReused if it is another's."""
    if digest not in (write_digest(write), _digest(write, is_of_generation=True)):
        raise RequestIdReused(request_id=write.request_id)
    return Committed(sequence, deleted_count, is_repeat=True, failures=failures)


def write_digest(write: ItemWrite) -> str:
    """Returns a hash of all but the request id, equal for two attempts at one write.

    Embeddings and tokens are left out. They follow from content and model, but encoding the
    same content again may round differently in another batch. So are generation and model: a
    repeat goes to the generation that serves then.
    """
    return _digest(write)


def _digest(write: ItemWrite, *, is_of_generation: bool = False) -> str:
    """Returns the hash, or the one of answers that earlier releases kept."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(write, is_of_generation):
        digest.update(_LENGTH.pack(len(part)))
        digest.update(part)
    return digest.hexdigest()


def _parts(write: ItemWrite, is_of_generation: bool) -> Iterable[bytes]:
    yield type(write).__name__.lower().encode()
    yield (write.index_id if is_of_generation else alias_of(write.index_id)).encode()
    match write:
        case Upsert():
            if is_of_generation:
                yield write.fingerprint.encode()
            for item in write.items:
                yield item.item_id.encode()
                yield item.content.modality.value.encode()
                yield content_bytes(item.content)
                yield attributes_json(item.attributes)
        case Patch():
            for patch in write.patches:
                yield patch.item_id.encode()
                yield attributes_json(patch.attributes)
                removed = [*patch.removed_attributes]
                yield json.dumps([removed, patch.attributes_replaced]).encode()
        case Delete():
            yield from (each.encode() for each in write.item_ids)
