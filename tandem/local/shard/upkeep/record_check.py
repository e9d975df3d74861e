"""Takes items with damaged records out of an index that was loaded from a snapshot.

A snapshot is read instead of the records, so an item whose record was damaged since would be found,
and then fail to be read. The check of all checksums runs before the first search if the store is
small enough, and otherwise in its own thread alongside searches.
"""

import threading
from collections.abc import Callable, Mapping

from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding
from tandem.local.shard.metrics import CORRUPT_ITEMS
from tandem.local.shard.retrieval.searchable_index import SearchableIndex

log = get_logger()

_STORE_FAULTS: tuple[type[Exception], ...] = (*DISK_FAULTS, TandemError)


def take_out_damaged(
    store: ItemStore,
    index_id: str,
    index: SearchableIndex,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Takes items whose records fail their checksums out of the index; returns how many.

    Counts each and logs it by id. Safe while store and index change.
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
    """Takes an item out of the index unless it was repaired meanwhile; returns whether it did."""
    if not isinstance(store.read_embeddings(index_id, [item_id])[0], ItemCorrupt):
        return False
    index.delete([item_id])
    CORRUPT_ITEMS.inc()
    log.error("item corrupt", index_id=index_id, why=error.message)
    # A write may have repaired it before it was taken out: then it is put back as it is now, and
    # again if it changed again, until the index agrees with the store.
    applied = None
    while (state := _state(store, index_id, item_id)) != applied:
        [item] = store.read_embeddings(index_id, [item_id])
        if isinstance(item, StoredEmbedding):
            index.upsert([item])
        else:
            index.delete([item_id])
        applied = state
    return applied is None


def check_records(
    store: ItemStore, indexes: Mapping[str, SearchableIndex], stop: threading.Event
) -> None:
    """Takes damaged items out of indexes that were read from snapshots, until `stop` is set."""
    for index_id, index in indexes.items():
        try:
            count = take_out_damaged(store, index_id, index, stop.is_set)
        except _STORE_FAULTS as error:
            # The store was closed or is being reopened; the next commit finds and repairs that.
            log.error("records not checked", index_id=index_id, why=str(error))
            continue
        if stop.is_set():
            return
        log.info("records checked", index_id=index_id, corrupt_count=count)


def _state(store: ItemStore, index_id: str, item_id: str) -> int | None:
    """Returns the version of the item in the store; None if it is missing or damaged."""
    if not isinstance(store.read_embeddings(index_id, [item_id])[0], StoredEmbedding):
        return None
    return store.read_versions(index_id, [item_id])[0]
