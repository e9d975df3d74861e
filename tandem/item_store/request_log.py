"""Keeps the answers to the last writes with a request id, so that a repeat gets the same answer.

Of its two databases, `requests` has the answers by request id, and `request_order` the ids in
order, to know which to forget.
"""

import json

import lmdb

from tandem.errors import ItemCorrupt, RequestIdReused
from tandem.item_store.checksum import ChecksumMismatch, seal, unseal
from tandem.item_store.files import StoreFiles, seal_json
from tandem.item_store.item_write import Committed, ItemWrite

KEPT_REQUEST_COUNT = 100_000


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
        digest, sequence, deleted_count = json.loads(_unsealed(key, value))
        if digest != write.digest().hex():
            raise RequestIdReused(request_id=write.request_id)
        return Committed(sequence, deleted_count, is_repeat=True)

    def keep(self, txn: lmdb.Transaction, write: ItemWrite, committed: Committed) -> None:
        """Keeps the answer, and forgets the oldest where there are too many."""
        if not write.request_id:
            return
        key = write.request_id.encode()
        answer = [write.digest().hex(), committed.sequence, committed.deleted_count]
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
