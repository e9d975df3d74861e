"""Whether the records behind an index are sound, which a snapshot of it does not tell.

A snapshot is read in place of the records, so an item whose record was damaged meanwhile would be
found, and fail whatever then reads it. Each record's checksum is looked at: before the first search
where the store is small enough, and beside searches, in a thread of its own, where it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from index_svc.metrics import CORRUPT_ITEMS
from index_svc.retrieval.searchable_index import SearchableIndex
from tandem.chassis.log import get_logger
from tandem.errors import ItemCorrupt, TandemError
from tandem.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding

log = get_logger()

_STORE_FAULTS: tuple[type[Exception], ...] = (*DISK_FAULTS, TandemError)


def take_out_damaged(
    store: ItemStore,
    index_id: str,
    index: SearchableIndex,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Takes the items out of the index whose records fail their checksums; returns how many.

    Each is counted and logged by id. Safe beside changes of store and index.
    """
    count = 0
    for item_id, error in store.scan_damaged(index_id):
        if is_stopped():
            break
        count += take_out(store, index_id, index, item_id, error)
    return count


def take_out(
    store: ItemStore, index_id: str, index: SearchableIndex, item_id: str, error: ItemCorrupt
) -> bool:
    """Takes an item out of the index unless it was mended meanwhile; returns whether it was."""
    if not isinstance(store.read_embeddings(index_id, [item_id])[0], ItemCorrupt):
        return False
    index.delete([item_id])
    CORRUPT_ITEMS.inc()
    log.error("item corrupt", index_id=index_id, why=error.message)
    # A write may have mended it before it was taken out: then it goes back as it is now, and once
    # more if it changed again, until the index has what the store has.
    applied = None
    while (state := _state(store, index_id, item_id)) != applied:
        [item] = store.read_embeddings(index_id, [item_id])
        if isinstance(item, StoredEmbedding):
            index.upsert([item])
        else:
            index.delete([item_id])
        applied = state
    return applied is None


class RecordCheck:
    """The check of all indexes beside searches. Once, after a load."""

    def __init__(self, store: ItemStore, indexes: Mapping[str, SearchableIndex]) -> None:
        """Begins at once; `indexes` are those that were read from snapshots."""
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(store, dict(indexes)), name="record check", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends it, wherever it is; returns when it has."""
        self._stop.set()
        self._thread.join()

    def wait(self, timeout_seconds: float) -> bool:
        """Returns whether it came to its end in that time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self, store: ItemStore, indexes: Mapping[str, SearchableIndex]) -> None:
        for index_id, index in indexes.items():
            try:
                count = take_out_damaged(store, index_id, index, self._stop.is_set)
            except _STORE_FAULTS as error:
                # The store was closed, or is being opened anew; a commit finds and mends that.
                log.error("records not checked", index_id=index_id, why=str(error))
                continue
            if self._stop.is_set():
                return
            log.info("records checked", index_id=index_id, corrupt_count=count)


def _state(store: ItemStore, index_id: str, item_id: str) -> int | None:
    """Returns which write of the item the store has; None where it has none that is sound."""
    if not isinstance(store.read_embeddings(index_id, [item_id])[0], StoredEmbedding):
        return None
    return store.read_versions(index_id, [item_id])[0]
