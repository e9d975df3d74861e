"""Runs one shard: the item store is the truth, and the indexes in memory follow it."""

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from tandem.chassis.process.memory import Trimmer
from tandem.chassis.telemetry.log import get_logger
from tandem.contract.content import Modality, TextContent
from tandem.contract.search.item_changes import ItemSelection
from tandem.errors import (
    IndexNotFound,
    InternalFault,
    ItemCorrupt,
    SequenceNotReached,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.local.item_store.group_commit import GroupCommit
from tandem.local.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding
from tandem.local.shard.memory_limit import MemoryLimit
from tandem.local.shard.metrics import (
    COMMIT_RECORDS,
    ITEMS,
    KEYWORD_SEARCHES,
    SEARCHES_OF,
    SHARD_CORRUPT,
    STAGE_DURATION,
    STORE_USED_BYTES,
)
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.retrieval.searchable_index import KeywordSource, SearchableIndex
from tandem.local.shard.settings import SHARD_DEFAULTS, ShardSettings
from tandem.local.shard.shard_gauges import SHARD_GAUGES, ShardState
from tandem.local.shard.upkeep.index_loader import load_index, rows_folder_beside
from tandem.local.shard.upkeep.live_recall import LiveRecall
from tandem.local.shard.upkeep.maintenance import Maintenance
from tandem.local.shard.upkeep.recall_check import RecallCheck
from tandem.local.shard.upkeep.record_check import check_records, take_out, take_out_damaged
from tandem.local.shard.upkeep.snapshot_schedule import SnapshotSchedule
from tandem.local.shard.upkeep.tuning_file import TuningFile
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Delete, Drop, ItemWrite, Patch, Upsert
from tandem.stages.items import MAX_READ_BYTES, Deleted, ItemRecord
from tandem.stages.neighbours import ShardNeighbourQuery, ShardNeighbours
from tandem.stages.notes import WRITER_PREFIX, Note, WriterRule
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer

log = get_logger()

_DROP_COUNT = 256
# How many ids a listing reads at once, and how many times before another one takes its turn.
_BLOCK_COUNT = 1_000
_PART_BLOCK_COUNT = 10

# Raised where the store is closed, or being reopened.
_STORE_CLOSED: tuple[type[Exception], ...] = (*DISK_FAULTS, ServiceUnavailable)


class StoredShard:
    """Writes, reads and searches the items of one shard; its methods block, for use in threads.

    A write is committed to the store, then applied to the indexes in commit order, then
    acknowledged: every search that begins after that sees it, and sees all of a batch or none.
    """

    def __init__(
        self, store: ItemStore, folder: Path, settings: ShardSettings = SHARD_DEFAULTS
    ) -> None:
        """Takes over the store and its folder; load() must come before any other call."""
        self._store = store
        self._settings = settings
        self._memory = MemoryLimit(settings.memory_bytes)
        self._gpu_number = settings.gpu_number if settings.gpu_number >= 0 else None
        self._keyword_attributes = (
            settings.keyword_attributes if settings.keywords_enabled else None
        )
        self._label = str(store.identity.shard_number)
        self._snapshots_folder = folder / "snapshots"
        self._indexes: dict[str, SearchableIndex] = {}
        self._applied_sequence = 0
        self._is_loaded = False
        self.work_after_load: dict[str, threading.Thread] = {}
        """What runs alongside searches once, or did: "record check", "keyword build"."""
        self._stop = threading.Event()
        tuning = IndexTuning(
            index_type=settings.faiss_type,
            recall_target=settings.recall_target,
            memory_bytes=settings.faiss_memory_bytes,
        )
        self.tunings = TuningFile(folder / "tuning.json", tuning)
        self.live_recall = LiveRecall(settings.recall_sample_share, settings.recall_window_seconds)
        self.maintenance = Maintenance(
            lambda: self._indexes,
            SnapshotSchedule(
                self._snapshots_folder,
                store.store_id,
                settings.snapshot_change_count,
                lambda: self._applied_sequence,
                self._label,
            ),
            RecallCheck(self.live_recall, self.tunings, settings.recall_floor, self._label),
            self.tunings,
            self.live_recall,
            self._gpu_number,
            self._memory,
            self._label,
        )
        self._writer: GroupCommit[ItemWrite, Committed] = GroupCommit(
            self._commit,
            max_wait_seconds=settings.commit_wait_seconds,
            idle=store.env.check_readers,
            recover=self._recover,
            recoverable=DISK_FAULTS,
            refusal=self._refusal,
        )

    def load(self) -> None:
        """Loads the indexes and starts their maintenance; a second call does nothing.

        Where a FAISS index is missing or not trusted, searches compare every item until one is
        built.
        """
        if self._is_loaded:
            return
        # Snapshots have links of what is still needed of the last process's files.
        shutil.rmtree(rows_folder_beside(self._snapshots_folder), ignore_errors=True)
        sequence = self._store.sequence()
        is_checked_first = self._store.env.used_bytes() <= self._settings.checked_at_start_bytes
        unchecked: dict[str, SearchableIndex] = {}
        for index_id in self._store.index_ids():
            loaded = load_index(self._store, index_id, self._snapshots_folder, self._gpu_number)
            self._indexes[index_id] = loaded.index
            self.maintenance.note_change(index_id)
            if loaded.snapshot_sequence is not None:
                if is_checked_first:
                    take_out_damaged(self._store, index_id, loaded.index)
                else:
                    unchecked[index_id] = loaded.index
                for modality in Modality:
                    self.maintenance.snapshots.note_loaded(
                        index_id, modality, loaded.snapshot_sequence
                    )
            log.info(
                "index loaded",
                index_id=index_id,
                text_count=loaded.index.item_count(Modality.TEXT),
                image_count=loaded.index.item_count(Modality.IMAGE),
                snapshot_sequence=loaded.snapshot_sequence,
            )
        for folder in self._snapshots_folder.glob("*"):
            if folder.name not in self._indexes:  # dropped just before the last process ended
                self.maintenance.forget(folder.name)
        self._applied_sequence = sequence
        self._attach_keywords(self._indexes)
        self._is_loaded = True
        Trimmer().trim()  # of what was read and is in arrays now
        self._measure()
        SHARD_CORRUPT.labels(self._label).set(0)
        SHARD_GAUGES.follow(self._label, self.state)
        self.maintenance.start()
        if unchecked:
            self._run_alongside("record check", partial(check_records, self._store, unchecked))

    def check(self) -> None:
        """Raises an error where the shard cannot write.

        ServiceUnavailable until load() is done, and between a fault of the disk and the recovery
        from it; InternalFault after any other fault in a commit, where searches and reads continue
        but only a restart repairs writing.
        """
        self._check_loaded()
        self._writer.check()

    @property
    def applied_sequence(self) -> int:
        """Returns the last change that a search starting now is sure to see."""
        return self._applied_sequence

    def indexes(self) -> dict[str, SearchableIndex]:
        """Returns a copy of the indexes by id."""
        self._check_loaded()
        return dict(self._indexes)

    def search(self, query: ShardQuery, *, at_once: bool = False) -> ShardAnswer:
        """Returns the nearest items for each embedding of the query.

        Raises ServiceUnavailable, IndexNotFound, ModelMismatch, EmbeddingInvalid,
        SequenceNotReached (the caller waits for applied_sequence first), and with `at_once`
        LockBusy instead of waiting for a change.
        """
        self._check_loaded()
        applied_sequence = self._applied_sequence  # before the search: it sees all up to here
        if applied_sequence < query.minimum_sequence:
            raise SequenceNotReached(minimum=query.minimum_sequence, applied=applied_sequence)
        index = self.index(query.index_id)
        found = index.search(query, at_once=at_once)
        for one in found:
            SEARCHES_OF(one.path.strategy.name.lower()).inc()
        self.live_recall.offer(query)
        keyword_found = None
        if query.keywords:
            with STAGE_DURATION.labels("keywords").time():
                keyword_found = index.search_words(query)
            KEYWORD_SEARCHES.labels(keyword_found.state.name.lower()).inc()
        return ShardAnswer(found, applied_sequence, index.item_count(query.modality), keyword_found)

    def find_neighbours(self, query: ShardNeighbourQuery) -> ShardNeighbours:
        """Returns the neighbours of a query and of its candidates, among the items as they are now.

        Raises ServiceUnavailable, IndexNotFound, ModelMismatch, EmbeddingInvalid.
        """
        return self.index(query.index_id).find_neighbours(query)

    def index(self, index_id: str) -> SearchableIndex:
        """Returns the index; raises IndexNotFound."""
        self._check_loaded()
        index = self._indexes.get(index_id)
        if index is None:
            raise IndexNotFound(index_id=index_id)
        return index

    def write(self, write: ItemWrite) -> Future[Committed]:
        """Returns a future that completes once the write is on disk and later searches see it.

        The future raises ModelMismatch, EmbeddingInvalid, IndexNotFound (a delete), RequestIdReused
        or StoreFull. Raises StoreFull for another index where there are too many, and for items
        that do not fit into the memory.
        """
        self._check_loaded()
        if isinstance(write, Upsert):
            self._memory.check(list(self._indexes.values()))
        limit, is_new = self._settings.max_index_count, write.index_id not in self._indexes
        if is_new and isinstance(write, Upsert) and len(self._indexes) >= limit:
            raise StoreFull(
                why=f"it has {len(self._indexes):,} indexes",
                advice="delete one that is not needed, or raise INDEX_MAX_INDEX_COUNT",
            )
        return self._writer.submit(write)

    def notes(self, prefix: str) -> Sequence[Note]:
        """Returns the notes whose keys begin so, by key."""
        self._check_loaded()
        return self._store.notes(prefix)

    def drop(self, index_id: str, deadline_time: float) -> Deleted:
        """Deletes the index's items until the deadline, then the index if it is empty.

        Each batch is its own write: deletions stay, and another call continues. Raises
        IndexNotFound, and what the writes raise.
        """
        self.index(index_id)
        key = WRITER_PREFIX + index_id
        found = (note for note in self._store.notes(key) if note.key == key)
        rule = WriterRule.of(next(found, None))
        term = 0 if rule.is_open else max(rule.term, 1)
        deleted_count = 0
        while True:
            if item_ids := self._store.item_ids(index_id, _DROP_COUNT):
                committed = self.write(Delete(index_id, item_ids, term=term)).result()
                deleted_count += committed.deleted_count
            else:
                committed = self.write(Drop(index_id)).result()
            # It is not dropped where items arrived meanwhile.
            if committed.is_dropped or time.monotonic() > deadline_time:
                break
        if committed.is_dropped:
            self.live_recall.forget(index_id)
            self.maintenance.forget(index_id)
            self.tunings.forget(index_id)  # last, as it fails on a full disk
        return Deleted(deleted_count, committed.sequence, is_complete=committed.is_dropped)

    def changes(self, after_sequence: int, max_count: int) -> ChangePage:
        """Returns changes after a sequence, and which shard and store they are of."""
        self._check_loaded()
        identity, found = self._store.identity, self._store.changes_since(after_sequence)
        return ChangePage(
            changes=None if found is None else list(itertools.islice(found, max_count)),
            sequence=self._store.sequence(),
            store_id=self._store.store_id,
            shard_number=identity.shard_number,
            shard_count=identity.shard_count,
        )

    def read_within(
        self, index_id: str, item_ids: Sequence[str], max_bytes: int = MAX_READ_BYTES
    ) -> tuple[list[ItemRecord], int]:
        """Returns the existing items in the order of the ids, and how many ids were looked up.

        Looks up at least one id, and stops before the records exceed `max_bytes`. Raises
        IndexNotFound, ItemCorrupt.
        """
        self._check_loaded()
        try:
            items = self._store.read_items(index_id, item_ids, min(max_bytes, MAX_READ_BYTES))
        except ItemCorrupt as error:
            # Damaged since the start: take it out of searches.
            if (index := self._indexes.get(index_id)) is not None:
                take_out(self._store, index_id, index, error.metadata["item_id"], error)
            raise
        return [item for item in items if item is not None], len(items)

    def item_ids(
        self, index_id: str, count: int, after: str, selection: ItemSelection
    ) -> tuple[Sequence[str], str | None]:
        """Returns selected ids after that one, in byte order, and the id to continue after, if any.

        Reads one part of the index: a selection of few of millions would otherwise keep a thread
        that searches need for seconds. Raises IndexNotFound.
        """
        index = self.index(index_id)
        where = None if selection.filter is None else selection.filter.tree
        if where is not None and (few := index.selected(None, where)) is not None:
            return [each for each in few if each > after and selection.has_id(each)][:count], None
        found: list[str] = []
        for _ in range(_PART_BLOCK_COUNT):
            block = self._store.item_ids(index_id, _BLOCK_COUNT, after, selection.prefix)
            fitting = list(filter(selection.has_id, block))
            found += fitting if where is None else index.selected(fitting, where) or ()
            if len(block) < _BLOCK_COUNT or len(found) >= count:
                return found[:count], None
            after = block[-1]
        return found, after

    def fingerprint(self, index_id: str) -> str:
        """Returns the fingerprint of the index's model; raises IndexNotFound."""
        self._check_loaded()
        return self._store.index_info(index_id).fingerprint

    def used_bytes(self) -> int:
        """Returns how much of the store's map has ever been used; 0 once it is closed."""
        try:
            return self._store.env.used_bytes()
        except _STORE_CLOSED:
            return 0

    def state(self) -> ShardState:
        """Returns the gauges for a Prometheus scrape, without waiting; safe from any thread."""
        try:
            return ShardState(
                oldest_reader_age_seconds=self._store.env.oldest_reader_age_seconds(),
                commit_age_seconds=self._store.env.commit_age_seconds(),
                store_limit_bytes=self._store.env.map_bytes(),
                disk_free_bytes=self._store.env.free_bytes(),
                snapshot_age_seconds=self.maintenance.snapshots.age_seconds(),
                unsaved_change_count=self.maintenance.snapshots.unsaved_change_count(self._indexes),
                queued_write_count=self._writer.queued_count,
            )
        except _STORE_CLOSED:
            return ShardState(queued_write_count=self._writer.queued_count)

    def close(self) -> None:
        """Commits what was submitted and closes the store; no other call may be in progress."""
        SHARD_GAUGES.forget(self._label)
        self.maintenance.stop()
        self._stop.set()
        for thread in self.work_after_load.values():
            thread.join()
        self._writer.close()
        self._store.close()

    def _attach_keywords(self, indexes: Mapping[str, SearchableIndex]) -> None:
        """Has the words of loaded indexes follow changes from now on, and builds them."""
        if self._keyword_attributes is None or not indexes:
            return
        from tandem.local.shard.keywords.keyword_build import build_keywords

        building = {}
        for index_id, index in indexes.items():
            if (source := self._new_keywords()) is not None:
                source.index.begin_build()
                index.keywords, building[index_id] = source, source.index
        names = self._keyword_attributes
        self._run_alongside("keyword build", partial(build_keywords, self._store, building, names))

    def _run_alongside(self, name: str, work: Callable[[threading.Event], None]) -> None:
        """Starts a thread; `work` ends soon after the event that it gets is set."""
        thread = threading.Thread(target=work, args=(self._stop,), name=name, daemon=True)
        thread.start()
        self.work_after_load[name] = thread

    def _new_keywords(self) -> KeywordSource | None:
        if self._keyword_attributes is None:
            return None
        # Only here: the library is imported where words are searched.
        from tandem.local.shard.keywords.keyword_index import KeywordIndex

        return KeywordSource(KeywordIndex(), self._keyword_attributes)

    def _new_index(self, index_id: str) -> SearchableIndex:
        return SearchableIndex(
            self._store.index_info(index_id),
            keywords=self._new_keywords(),
            rows_folder=rows_folder_beside(self._snapshots_folder),
        )

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            raise ServiceUnavailable(service="index", why="the shard is loading")

    def _commit(self, writes: Sequence[ItemWrite]) -> Sequence[Committed | TandemError]:
        with STAGE_DURATION.labels("commit").time():
            outcomes = self._store.apply(writes)
        with STAGE_DURATION.labels("apply").time():
            for write, outcome in zip(writes, outcomes, strict=True):
                if isinstance(outcome, Committed) and not outcome.is_repeat:
                    if isinstance(write, Patch):
                        self._follow_patch(write, outcome)
                    elif isinstance(write, Upsert | Delete) or (
                        isinstance(write, Drop) and outcome.is_dropped
                    ):
                        self._follow(write)
                    self._applied_sequence = outcome.sequence
        COMMIT_RECORDS.observe(sum(write.record_count for write in writes))
        self._measure()
        return outcomes

    def _refusal(self, why: str) -> TandemError:
        """Returns the error for a write after a fault of the disk.

        LMDB reports a full disk as EIO too, and a failed snapshot may have freed space since.
        """
        if self._store.env.had_little_room():
            return StoreFull(why=why)
        return ServiceUnavailable(service="index", why=why)

    def _recover(self) -> None:
        """Reopens the store, and applies what a failed commit may have stored after all."""
        self._store.reopen()
        changes = self._store.changes_since(self._applied_sequence)
        if changes is None:
            raise InternalFault(why=f"change {self._applied_sequence} is no longer in the store")
        kept = set(self._store.index_ids())
        for change in changes:
            # Dropped since, with its items; another of its name may have come after that.
            if change.index_id not in kept or change.operation == "drop":
                self._indexes.pop(change.index_id, None)
                self._applied_sequence = change.sequence
                continue
            (item,) = self._store.read_embeddings(change.index_id, [change.item_id])
            if change.index_id not in self._indexes:
                self._indexes[change.index_id] = self._new_index(change.index_id)
            index = self._indexes[change.index_id]
            self.maintenance.note_change(change.index_id)
            if isinstance(item, StoredEmbedding):
                index.upsert([item])
            else:
                index.delete([change.item_id])
            self._applied_sequence = change.sequence

    def _follow(self, write: Upsert | Delete | Drop) -> None:
        self.maintenance.note_change(write.index_id)
        if isinstance(write, Delete):
            self._indexes[write.index_id].delete(write.item_ids)
            return
        if isinstance(write, Drop):
            del self._indexes[write.index_id]
            return
        if write.index_id not in self._indexes:
            self._indexes[write.index_id] = self._new_index(write.index_id)
        self._indexes[write.index_id].upsert(
            [
                StoredEmbedding(
                    item.item_id,
                    item.content.modality,
                    item.encoding.embedding,
                    item.attributes,
                    item.content.text if isinstance(item.content, TextContent) else "",
                )
                for item in write.items
            ]
        )

    def _follow_patch(self, write: Patch, committed: Committed) -> None:
        self.maintenance.note_change(write.index_id)
        index = self._indexes[write.index_id]
        done = {i: each for i, each in write.by_item.items() if i not in committed.failures}
        stored = self._store.read_embeddings(write.index_id, index.patch(done))
        if reworded := [each for each in stored if isinstance(each, StoredEmbedding)]:
            index.upsert(reworded)

    def _measure(self) -> None:
        for modality in Modality:
            count = sum(index.item_count(modality) for index in self._indexes.values())
            ITEMS.labels(self._label, modality.value).set(count)
        STORE_USED_BYTES.labels(self._label).set(self._store.env.used_bytes())
