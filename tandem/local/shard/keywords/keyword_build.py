"""Fills keyword indexes from the item store, in a thread alongside searches and writes."""

import itertools
import threading
import time
from collections.abc import Collection, Mapping

from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding
from tandem.local.shard.keywords.item_text import ItemText, item_text
from tandem.local.shard.keywords.keyword_index import KeywordIndex

log = get_logger()

_BATCH_COUNT = 512
_RETRY_SECONDS = 1.0
_STORE_FAULTS: tuple[type[Exception], ...] = (*DISK_FAULTS, TandemError)


def build_keywords(
    store: ItemStore,
    indexes: Mapping[str, KeywordIndex],
    attributes: Collection[str],
    stop: threading.Event,
) -> None:
    """Builds all keyword indexes once after a load; each takes live changes meanwhile.

    Each index's begin_build() must have been called before its first change. `attributes` are
    those whose texts count as the item's.
    """
    for index_id, index in indexes.items():
        while not stop.is_set():
            try:
                _build(store, index_id, index, attributes, stop)
                break
            except _STORE_FAULTS as error:
                # The store is being reopened; the next attempt puts the same items again.
                log.error("keywords not built", index_id=index_id, why=str(error))
                stop.wait(_RETRY_SECONDS)


def _build(
    store: ItemStore,
    index_id: str,
    index: KeywordIndex,
    attributes: Collection[str],
    stop: threading.Event,
) -> None:
    start_time = time.monotonic()
    count = 0
    texts = (
        stored_text(item, attributes)
        for item in store.scan_embeddings(index_id)
        if not isinstance(item, ItemCorrupt)
    )
    while batch := list(itertools.islice(texts, _BATCH_COUNT)):
        if stop.is_set():
            return
        index.put_stored(batch)
        count += sum(bool(text.text) for text in batch)
    index.end_build()
    log.info(
        "keywords built",
        index_id=index_id,
        text_count=count,
        seconds=round(time.monotonic() - start_time, 3),
    )


def stored_text(item: StoredEmbedding, attributes: Collection[str]) -> ItemText:
    """Returns the text of a stored item."""
    return ItemText(item.item_id, item.modality, item_text(item.text, item.attributes, attributes))
