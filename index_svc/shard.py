"""One shard at work: the item store is the truth, the FAISS indexes in memory follow it."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from index_svc.flat_index import F32, Hit
from index_svc.metrics import (
    COMMIT_RECORDS,
    CORRUPT_ITEMS,
    ITEMS,
    STAGE_DURATION,
    STORE_USED_BYTES,
)
from index_svc.searchable_index import SearchableIndex
from tandem.chassis.log import get_logger
from tandem.content import Modality
from tandem.corpus.group_commit import GroupCommit
from tandem.corpus.item_record import StoredItem
from tandem.corpus.item_store import ItemStore, StoredEmbedding
from tandem.corpus.item_write import Committed, Delete, ItemWrite
from tandem.errors import IndexNotFound, ItemCorrupt, ServiceUnavailable, TandemError

log = get_logger(__name__)


class Shard:
    """The items of one shard: written, read and searched.

    Plain blocking code for threads. A write is committed to the store, then applied to the FAISS
    indexes in the order of the commits, then acknowledged: every search that begins after the
    acknowledgement sees it, and a batch wholly or not at all.
    """

    def __init__(self, store: ItemStore, *, commit_wait_seconds: float = 0.005) -> None:
        """Takes over the store; nothing is served before load()."""
        self._store = store
        self._indexes: dict[str, SearchableIndex] = {}
        self._is_loaded = False
        self._applied_sequence = 0
        self._writer: GroupCommit[ItemWrite, Committed] = GroupCommit(
            self._commit, max_wait_seconds=commit_wait_seconds, idle=store.check_readers
        )

    def load(self) -> None:
        """Builds the FAISS indexes from the store; a second call does nothing.

        An item that fails its checksum is left out, counted and logged by id: one bad page must not
        keep the others from being found. Reading it raises ItemCorrupt; a new upsert mends it.
        """
        if self._is_loaded:
            return
        for index_id in self._store.index_ids():
            index = SearchableIndex(self._store.index_info(index_id))
            index.load(self._sound(index_id, self._store.scan_embeddings(index_id)))
            self._indexes[index_id] = index
            log.info(
                "index loaded",
                index_id=index_id,
                text_count=index.item_count(Modality.TEXT),
                image_count=index.item_count(Modality.IMAGE),
            )
        self._applied_sequence = self._store.sequence()
        self._is_loaded = True
        self._measure()

    @property
    def applied_sequence(self) -> int:
        """Every search that begins now sees the changes up to here."""
        return self._applied_sequence

    def item_count(self, index_id: str, modality: Modality) -> int:
        """Returns how many items of the modality a search compares. Raises IndexNotFound."""
        return self._index(index_id).item_count(modality)

    def check(self) -> None:
        """Raises ServiceUnavailable before load() is done, InternalFault after a fault in a commit.

        After such a fault searches and reads go on, but only a restart mends writing.
        """
        self._check_loaded()
        self._writer.check()

    def search(
        self, index_id: str, fingerprint: str, modality: Modality, queries_QD: Sequence[F32], k: int
    ) -> list[list[Hit]]:
        """Returns, for each query, the min(k, all) nearest items of the modality, best first.

        Ties by smaller item id. Raises IndexNotFound, ModelMismatch, EmbeddingInvalid.
        """
        return self._index(index_id).search(fingerprint, modality, queries_QD, k)

    def write(self, write: ItemWrite) -> Future[Committed]:
        """Returns a future that is done once the write is on disk and every later search sees it.

        The future raises ModelMismatch, EmbeddingInvalid, IndexNotFound (a delete) or StoreFull.
        """
        self._check_loaded()
        return self._writer.submit(write)

    def read(self, index_id: str, item_ids: Sequence[str]) -> list[StoredItem]:
        """Returns the items that are there, in the order asked for.

        Raises IndexNotFound, ItemCorrupt.
        """
        self._check_loaded()
        return [item for item in self._store.read_items(index_id, item_ids) if item is not None]

    def close(self) -> None:
        """Commits what was submitted and closes the store; no other call may be under way."""
        self._writer.close()
        self._store.close()

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            raise ServiceUnavailable(service="index", why="the shard is loading")

    def _index(self, index_id: str) -> SearchableIndex:
        self._check_loaded()
        index = self._indexes.get(index_id)
        if index is None:
            raise IndexNotFound(index_id=index_id)
        return index

    def _commit(self, writes: Sequence[ItemWrite]) -> Sequence[Committed | TandemError]:
        with STAGE_DURATION.labels("commit").time():
            outcomes = self._store.apply(writes)
        with STAGE_DURATION.labels("apply").time():
            for write, outcome in zip(writes, outcomes, strict=True):
                if isinstance(outcome, Committed) and not outcome.is_repeat:
                    self._follow(write)
                    self._applied_sequence = outcome.sequence
        COMMIT_RECORDS.observe(sum(write.record_count for write in writes))
        self._measure()
        return outcomes

    def _follow(self, write: ItemWrite) -> None:
        if isinstance(write, Delete):
            self._indexes[write.index_id].delete(write.item_ids)
            return
        if write.index_id not in self._indexes:
            info = self._store.index_info(write.index_id)
            self._indexes[write.index_id] = SearchableIndex(info)
        self._indexes[write.index_id].upsert(
            [
                StoredEmbedding(
                    item.item_id, item.content.modality, item.encoding.embedding, item.attributes
                )
                for item in write.items
            ]
        )

    def _sound(
        self, index_id: str, scanned: Iterable[StoredEmbedding | ItemCorrupt]
    ) -> Iterable[StoredEmbedding]:
        for item in scanned:
            if isinstance(item, ItemCorrupt):
                CORRUPT_ITEMS.inc()
                log.error("item corrupt", index_id=index_id, why=item.message)
            else:
                yield item

    def _measure(self) -> None:
        for modality in Modality:
            count = sum(index.item_count(modality) for index in self._indexes.values())
            ITEMS.labels(modality.value).set(count)
        STORE_USED_BYTES.set(self._store.used_bytes())
