"""One shard at work: the item store is the truth, the indexes in memory follow it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from index_svc.metrics import (
    COMMIT_RECORDS,
    ITEMS,
    SEARCHES,
    STAGE_DURATION,
    STORE_USED_BYTES,
)
from index_svc.retrieval.hit import Found
from index_svc.retrieval.index_type import IndexTuning
from index_svc.retrieval.query import Query
from index_svc.retrieval.searchable_index import SearchableIndex
from index_svc.shard_gauges import SHARD_GAUGES, ShardState
from index_svc.upkeep.index_loader import load_index
from index_svc.upkeep.live_recall import LiveRecall
from index_svc.upkeep.maintenance import Maintenance, MaintenanceSettings
from index_svc.upkeep.record_check import RecordCheck, take_out, take_out_damaged
from index_svc.upkeep.tuning_file import TuningFile
from tandem.chassis.log import get_logger
from tandem.contract.content import Modality
from tandem.errors import (
    IndexNotFound,
    InternalFault,
    ItemCorrupt,
    SequenceNotReached,
    ServiceUnavailable,
    StoreFull,
    TandemError,
)
from tandem.item_store.group_commit import GroupCommit
from tandem.item_store.item_record import StoredItem
from tandem.item_store.item_store import DISK_FAULTS, ItemStore, StoredEmbedding
from tandem.item_store.item_write import Committed, Delete, Drop, ItemWrite

log = get_logger()

MAX_READ_BYTES = 16 * 2**20
"""Of items' records that are read at once; two pictures of the largest size."""

_DROP_COUNT = 256

# What is raised where the store is closed for good, or for as long as it is opened anew.
_STORE_CLOSED: tuple[type[Exception], ...] = (*DISK_FAULTS, ServiceUnavailable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """How a shard commits, and looks after its indexes."""

    commit_wait_seconds: float = 0.005
    tuning: IndexTuning = field(default_factory=IndexTuning)
    """Of indexes that no operator tuned."""
    min_snapshot_change_count: int = 5_000
    recall_sample_share: float = 0.01
    recall_window_seconds: float = 300.0
    recall_floor: float = 0.95
    gpu_number: int | None = None
    checked_at_load_bytes: int = 1 << 30
    """Largest store whose records are all checked before the first search; those of a larger one
    are checked beside searches, unless they are read anyway."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a shard found."""

    found: Sequence[Found]
    """One for each query."""
    applied_sequence: int
    item_count: int
    """Of the index and modality, filtered out or not."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """How much of an index is gone by one call."""

    deleted_count: int
    sequence: int
    is_complete: bool


class Shard:
    """The items of one shard: written, read and searched.

    Plain blocking code for threads. A write is committed to the store, then applied to the indexes
    in the order of the commits, then acknowledged: every search that begins after the
    acknowledgement sees it, and a batch wholly or not at all.
    """

    def __init__(
        self, store: ItemStore, folder: Path, settings: ShardSettings | None = None
    ) -> None:
        """Takes over the store and its folder; nothing is served before load()."""
        settings = settings or ShardSettings()
        self._store = store
        self._settings = settings
        self._snapshots_folder = folder / "snapshots"
        self._indexes: dict[str, SearchableIndex] = {}
        self._applied_sequence = 0
        self._is_loaded = False
        self.record_check: RecordCheck | None = None
        """Under way beside searches, or done; None where there was no need of it."""
        self.tunings = TuningFile(folder / "tuning.json", settings.tuning)
        self.live_recall = LiveRecall(settings.recall_sample_share, settings.recall_window_seconds)
        self.maintenance = Maintenance(
            MaintenanceSettings(
                snapshots_folder=self._snapshots_folder,
                store_id=store.store_id,
                min_snapshot_change_count=settings.min_snapshot_change_count,
                recall_floor=settings.recall_floor,
                gpu_number=settings.gpu_number,
            ),
            lambda: self._indexes,
            lambda: self._applied_sequence,
            self.tunings,
            self.live_recall,
        )
        self._writer: GroupCommit[ItemWrite, Committed] = GroupCommit(
            self._commit,
            max_wait_seconds=settings.commit_wait_seconds,
            idle=store.check_readers,
            recover=self._recover,
            recoverable=DISK_FAULTS,
            refusal=self._refusal,
        )

    def load(self) -> None:
        """Reads the indexes and begins to look after them; a second call does nothing.

        Where a FAISS index is missing or could not be trusted, searches compare every item until
        one is built.
        """
        if self._is_loaded:
            return
        sequence = self._store.sequence()
        is_checked_first = self._store.used_bytes() <= self._settings.checked_at_load_bytes
        unchecked: dict[str, SearchableIndex] = {}
        for index_id in self._store.index_ids():
            loaded = load_index(
                self._store, index_id, self._snapshots_folder, self._settings.gpu_number
            )
            self._indexes[index_id] = loaded.index
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
            if folder.name not in self._indexes:  # dropped just before the process ended
                self.maintenance.forget(folder.name)
        self._applied_sequence = sequence
        self._is_loaded = True
        self._measure()
        SHARD_GAUGES.follow(self.state)
        self.maintenance.start()
        if unchecked:
            self.record_check = RecordCheck(self._store, unchecked)

    def check(self) -> None:
        """Raises ServiceUnavailable before load() is done and from a fault of the disk to recovery.

        InternalFault after any other fault in a commit: searches and reads go on, but only a
        restart mends writing.
        """
        self._check_loaded()
        self._writer.check()

    @property
    def applied_sequence(self) -> int:
        """Every change up to here is seen by a search that begins now."""
        return self._applied_sequence

    def indexes(self) -> dict[str, SearchableIndex]:
        """Returns the indexes by id; a copy."""
        self._check_loaded()
        return dict(self._indexes)

    def search(self, query: Query) -> Answer:
        """Returns, for each query, the nearest items of the modality.

        Raises ServiceUnavailable, IndexNotFound, ModelMismatch, EmbeddingInvalid, and
        SequenceNotReached where the minimum sequence is not reached yet: wait for
        applied_sequence before.
        """
        self._check_loaded()
        applied_sequence = self._applied_sequence  # before the search: it sees all up to here
        if applied_sequence < query.minimum_sequence:
            raise SequenceNotReached(minimum=query.minimum_sequence, applied=applied_sequence)
        index = self.index(query.index_id)
        found = index.search(query)
        for one in found:
            SEARCHES.labels(one.path.strategy.name.lower()).inc()
        self.live_recall.offer(query)
        return Answer(found, applied_sequence, index.item_count(query.modality))

    def index(self, index_id: str) -> SearchableIndex:
        """Returns the index; raises IndexNotFound."""
        self._check_loaded()
        index = self._indexes.get(index_id)
        if index is None:
            raise IndexNotFound(index_id=index_id)
        return index

    def write(self, write: ItemWrite) -> Future[Committed]:
        """Returns a future that is done once the write is on disk and every later search sees it.

        The future raises ModelMismatch, EmbeddingInvalid, IndexNotFound (a delete), RequestIdReused
        or StoreFull.
        """
        self._check_loaded()
        return self._writer.submit(write)

    def read(self, index_id: str, item_ids: Sequence[str]) -> list[StoredItem]:
        """Returns the items that are there, in the order asked for.

        Raises IndexNotFound, ItemCorrupt.
        """
        self._check_loaded()
        return [item for item in self._store.read_items(index_id, item_ids) if item is not None]

    def drop(self, index_id: str, deadline_time: float) -> Dropped:
        """Deletes the index's items, and the index once it has none; as far as it comes in time.

        Each batch is a write of its own: what was deleted stays so, and another call goes on.
        Raises IndexNotFound, and as the writes do.
        """
        self.index(index_id)
        deleted_count = 0
        while True:
            if item_ids := self._store.item_ids(index_id, _DROP_COUNT):
                committed = self.write(Delete(index_id, item_ids)).result()
                deleted_count += committed.deleted_count
            else:
                committed = self.write(Drop(index_id)).result()
            # Not dropped where items came in meanwhile.
            if committed.is_dropped or time.monotonic() > deadline_time:
                break
        if committed.is_dropped:
            self.live_recall.forget(index_id)
            self.tunings.forget(index_id)
            self.maintenance.forget(index_id)
        return Dropped(deleted_count, committed.sequence, is_complete=committed.is_dropped)

    def read_within(
        self, index_id: str, item_ids: Sequence[str], max_bytes: int = MAX_READ_BYTES
    ) -> tuple[list[StoredItem], int]:
        """Returns the items that are there, in the order asked for; and how many were looked for.

        Those are all, or the first whose records come to no more than `max_bytes`, at least one.
        Raises IndexNotFound, ItemCorrupt.
        """
        self._check_loaded()
        try:
            items, read_count = self._store.read_items_within(
                index_id, item_ids, min(max_bytes, MAX_READ_BYTES)
            )
        except ItemCorrupt as error:
            # Damaged since the start: the next search does without it.
            if (index := self._indexes.get(index_id)) is not None:
                take_out(self._store, index_id, index, error.metadata["item_id"], error)
            raise
        return [item for item in items if item is not None], read_count

    def fingerprint(self, index_id: str) -> str:
        """Returns which model made the index's encodings; raises IndexNotFound."""
        self._check_loaded()
        return self._store.index_fingerprint(index_id)

    def state(self) -> ShardState:
        """Returns what Prometheus is told at a scrape; safe from any thread, and waits for none."""
        try:
            return ShardState(
                oldest_reader_age_seconds=self._store.oldest_reader_age_seconds(),
                commit_age_seconds=self._store.commit_age_seconds(),
                store_limit_bytes=self._store.map_bytes(),
                disk_free_bytes=self._store.free_bytes(),
                snapshot_age_seconds=self.maintenance.snapshots.age_seconds(),
                unsaved_change_count=self.maintenance.snapshots.unsaved_change_count(self._indexes),
                queued_write_count=self._writer.queued_count,
            )
        except _STORE_CLOSED:
            return ShardState(queued_write_count=self._writer.queued_count)

    def close(self) -> None:
        """Commits what was submitted and closes the store; no other call may be under way."""
        SHARD_GAUGES.follow(ShardState)
        self.maintenance.stop()
        if self.record_check is not None:
            self.record_check.stop()
        self._writer.close()
        self._store.close()

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            raise ServiceUnavailable(service="index", why="the shard is loading")

    def _commit(self, writes: Sequence[ItemWrite]) -> Sequence[Committed | TandemError]:
        with STAGE_DURATION.labels("commit").time():
            outcomes = self._store.apply(writes)
        with STAGE_DURATION.labels("apply").time():
            for write, outcome in zip(writes, outcomes, strict=True):
                if isinstance(outcome, Committed) and not outcome.is_repeat:
                    if not isinstance(write, Drop) or outcome.is_dropped:
                        self._follow(write)
                    self._applied_sequence = outcome.sequence
        COMMIT_RECORDS.observe(sum(write.record_count for write in writes))
        self._measure()
        return outcomes

    def _refusal(self, why: str) -> TandemError:
        """Returns the refusal of a write after a fault of the disk.

        LMDB says EIO of a full disk too, and by the time one asks, a snapshot that could not be
        written may have made room again.
        """
        if self._store.had_little_room():
            return StoreFull(why=why)
        return ServiceUnavailable(service="index", why=why)

    def _recover(self) -> None:
        """Opens the store anew, and applies what a commit that failed may have stored after all."""
        self._store.reopen()
        changes = self._store.changes_since(self._applied_sequence)
        if changes is None:
            raise InternalFault(why=f"change {self._applied_sequence} is no longer in the store")
        kept = set(self._store.index_ids())
        for change in changes:
            if change.index_id not in kept:  # dropped since, with all that is changed here
                self._applied_sequence = change.sequence
                continue
            (item,) = self._store.read_embeddings(change.index_id, [change.item_id])
            index = self._indexes.setdefault(
                change.index_id, SearchableIndex(self._store.index_info(change.index_id))
            )
            if isinstance(item, StoredEmbedding):
                index.upsert([item])
            else:
                index.delete([change.item_id])
            self._applied_sequence = change.sequence
        for index_id in set(self._indexes) - kept:
            del self._indexes[index_id]

    def _follow(self, write: ItemWrite) -> None:
        if isinstance(write, Delete):
            self._indexes[write.index_id].delete(write.item_ids)
            return
        if isinstance(write, Drop):
            del self._indexes[write.index_id]
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

    def _measure(self) -> None:
        for modality in Modality:
            count = sum(index.item_count(modality) for index in self._indexes.values())
            ITEMS.labels(modality.value).set(count)
        STORE_USED_BYTES.set(self._store.used_bytes())
