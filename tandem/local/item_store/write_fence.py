"""Refuses writes while a shard's items move to other shards: for a moment, or sealed for good."""

import time

import lmdb

from tandem.local.item_store.files import StoreFiles
from tandem.stages.item_write import Committed, Fence, refused_by_fence

SEALED_KEY = "sealed"


class WriteFence:
    """Holds one store's fence: the moment in this process, the seal in the store."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._end_time = 0.0

    def check(self, txn: lmdb.Transaction) -> None:
        """Raises ServiceUnavailable where a write is refused."""
        if time.monotonic() < self._end_time or self._files.get_meta(txn, SEALED_KEY):
            raise refused_by_fence()

    def put(self, txn: lmdb.Transaction, fence: Fence, sequence: int) -> Committed:
        """Begins, seals or ends the fence, in the order of the writes."""
        self._end_time = time.monotonic() + fence.seconds
        if fence.sealed_sequence == sequence:
            self._files.put_meta(txn, SEALED_KEY, value=True)
        elif fence.seconds == 0 and self._files.get_meta(txn, SEALED_KEY):
            self._files.delete_meta(txn, SEALED_KEY)
        return Committed(sequence, is_sealed=bool(self._files.get_meta(txn, SEALED_KEY)))
