"""Fills keyword indexes from the item store, in a thread alongside searches and writes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from tandem.chassis.telemetry.log import get_logger
from tandem.errors import ItemCorrupt, TandemError
from tandem.local.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding
from tandem.local.shard.keywords.item_text import ItemText, item_text
from tandem.local.shard.keywords.keyword_index import KeywordIndex

log = get_logger()

_BATCH_COUNT = 512
_RETRY_SECONDS = 1.0
_STORE_FAULTS: tuple[type[Exception], ...] = (*DISK_FAULTS, TandemError)


class KeywordBuild:
    """Builds all keyword indexes once after a load; each takes live changes meanwhile."""

    def __init__(
        self, store: ItemStore, indexes: Mapping[str, KeywordIndex], attributes: Collection[str]
    ) -> None:
        """Starts at once; each index's begin_build() must have been called before its first change.

        `attributes` are those whose texts count as the item's.
        """
        self._store = store
        self._attributes = attributes
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(dict(indexes),), name="keyword build", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops the build and waits for its end."""
        self._stop.set()
        self._thread.join()

    def wait(self, timeout_seconds: float) -> bool:
        """Waits for the build; returns whether it finished in that time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self, indexes: Mapping[str, KeywordIndex]) -> None:
        for index_id, index in indexes.items():
            while not self._stop.is_set():
                try:
                    self._build(index_id, index)
                    break
                except _STORE_FAULTS as error:
                    # The store is being reopened; the next attempt puts the same items again.
                    log.error("keywords not built", index_id=index_id, why=str(error))
                    self._stop.wait(_RETRY_SECONDS)

    def _build(self, index_id: str, index: KeywordIndex) -> None:
        start_time = time.monotonic()
        count = 0
        for texts in _batches(self._texts(index_id)):
            if self._stop.is_set():
                return
            index.put_stored(texts)
            count += sum(bool(text.text) for text in texts)
        index.end_build()
        log.info(
            "keywords built",
            index_id=index_id,
            text_count=count,
            seconds=round(time.monotonic() - start_time, 3),
        )

    def _texts(self, index_id: str) -> Iterator[ItemText]:
        for item in self._store.scan_embeddings(index_id):
            if not isinstance(item, ItemCorrupt):
                yield stored_text(item, self._attributes)


def stored_text(item: StoredEmbedding, attributes: Collection[str]) -> ItemText:
    """Returns the text of a stored item."""
    return ItemText(item.item_id, item.modality, item_text(item.text, item.attributes, attributes))


def _batches(texts: Iterable[ItemText]) -> Iterator[list[ItemText]]:
    remaining = iter(texts)
    while batch := list(itertools.islice(remaining, _BATCH_COUNT)):
        yield batch
