"""Looks after a shard's indexes in one background thread, while they are searched.

Only this thread changes FAISS indexes and writes snapshots, one thing at a time:

    rebuild   another type, many more items or many dead rows: build aside, then swap
    fold      add the newest rows to the FAISS index, so that searches need not compare each
    snapshot  write an index that has changed enough since the last one
    recall    repeat sampled searches exactly, and rebuild where recall is low

A second thread moves new rows out of memory, also during a build.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.content import Modality
from tandem.contract.search_path import Fallback, SearchFallback
from tandem.errors import IndexTypeInvalid
from tandem.local.shard.memory_limit import MemoryLimit
from tandem.local.shard.metrics import (
    LIST_IMBALANCE,
    MAINTENANCE_DURATION,
    MAINTENANCE_FAILURES,
    REBUILD_REQUESTS,
)
from tandem.local.shard.retrieval.faiss_threads import keep_faiss_in_this_thread
from tandem.local.shard.retrieval.index_type import (
    FLAT,
    IndexTuning,
    choose_index_types,
    is_outdated,
)
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.live_recall import LiveRecall
from tandem.local.shard.upkeep.rebuild import fold, needs_fold, needs_rebuild, rebuild
from tandem.local.shard.upkeep.recall_check import RecallCheck
from tandem.local.shard.upkeep.snapshot_schedule import CHANGED_SHARE, SnapshotSchedule
from tandem.local.shard.upkeep.tuning_file import TuningFile

log = get_logger()

_TICK_SECONDS = 0.2
_SAVE_SECONDS = 1.0
# A disk that was full a moment ago still is.
_FAILURE_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class _Work:
    """Holds the work that is requested for, or in progress on, one modality of one index."""

    is_rebuild_asked: bool = False
    refused: tuple[IndexTuning, str, int] | None = None
    activity: str = ""


class Maintenance:
    """Looks after the indexes that `indexes` returns."""

    def __init__(
        self,
        indexes: Callable[[], Mapping[str, SearchableIndex]],
        snapshots: SnapshotSchedule,
        recall_check: RecallCheck,
        tunings: TuningFile,
        live_recall: LiveRecall,
        gpu_number: int | None,
        memory: MemoryLimit,
        shard: str,
    ) -> None:
        """Does nothing before start() or step(); `shard` labels its gauges."""
        self.snapshots = snapshots
        self._recall_check = recall_check
        self._gpu_number = gpu_number
        self._shard = shard
        self._indexes = indexes
        self._tunings = tunings
        self._live_recall = live_recall
        self._work: dict[tuple[str, Modality], _Work] = {}
        self._changed: set[str] = set()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._memory = memory
        self._rows_exceed_memory = False
        self._saver = threading.Thread(target=self._save_rows, name="row saver", daemon=True)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()
        self._saver.start()

    def stop(self) -> None:
        """Ends after the current step; does not wait for an index that is being trained."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._saver.join(timeout=5)

    def ask_rebuild(self, index_id: str, modality: Modality, cause: str) -> None:
        """Requests that the index is rebuilt soon."""
        REBUILD_REQUESTS.labels(cause).inc()
        self._of(index_id, modality).is_rebuild_asked = True
        self.wake(index_id)

    def forget(self, index_id: str) -> None:
        """Forgets an index that was dropped; its snapshots are removed soon."""
        for modality in Modality:
            self._work.pop((index_id, modality), None)
        self._recall_check.forget(index_id)
        self.snapshots.forget(index_id)
        self._wake.set()

    def note_change(self, index_id: str) -> None:
        """Has the next step look at an index, whose items changed; others cost it nothing."""
        self._changed.add(index_id)

    def wake(self, index_id: str) -> None:
        """Starts the next step at once: a tuning of the index changed."""
        self.note_change(index_id)
        self._wake.set()

    def activity(self, index_id: str, modality: Modality) -> str:
        """Returns what is being done to the index; empty for nothing."""
        return self._of(index_id, modality).activity

    def step(self) -> bool:
        """Does what is due, one thing to each changed index; returns whether there was any."""
        indexes = self._indexes()
        worked = self._recall_check.step(indexes)
        for index_id, modality in self._recall_check.low_recalls(indexes):
            self.ask_rebuild(index_id, modality, "recall")
        self.snapshots.remove_forgotten(indexes)
        failures: list[Exception] = []
        self._rows_exceed_memory = self._memory.asks_for_bytes(list(indexes.values()))
        for index_id in [self._changed.pop() for _ in range(len(self._changed))]:
            if (index := indexes.get(index_id)) is None:
                continue
            is_worked_on = True
            try:
                looks = [self._look_after(index_id, index, modality) for modality in Modality]
                is_worked_on = self._snapshot_if_due(index_id, index) or any(looks)
                worked |= is_worked_on
            except Exception as error:
                error.add_note(f"index {index_id}")
                failures.append(error)
            if is_worked_on:
                self.note_change(index_id)  # there may be more to do
        if worked:
            self._measure_imbalance()
        if failures:
            raise ExceptionGroup("looking after indexes", failures)
        return worked

    def _run(self) -> None:
        keep_faiss_in_this_thread()  # builds take longer, but do not slow down searches
        while not self._stop.is_set():
            try:
                worked = self.step()
            except Exception:  # no fault in here may end the thread
                MAINTENANCE_FAILURES.inc()
                log.exception("maintenance failed")
                self._stop.wait(_FAILURE_PAUSE_SECONDS)
                continue
            if not worked:
                self._wake.wait(_TICK_SECONDS)
                self._wake.clear()

    def _save_rows(self) -> None:
        pause_seconds = _SAVE_SECONDS
        while not self._stop.wait(pause_seconds):
            pause_seconds = _SAVE_SECONDS
            try:
                for index in list(self._indexes().values()):
                    index.save_rows()
            except Exception:  # rows stay in memory, and are tried again
                MAINTENANCE_FAILURES.inc()
                log.exception("rows not saved")
                pause_seconds = _FAILURE_PAUSE_SECONDS

    def _look_after(self, index_id: str, index: SearchableIndex, modality: Modality) -> bool:
        part = index.part(modality)
        work = self._of(index_id, modality)
        tuning = self._tunings.get(index_id, modality)
        index_types = choose_index_types(
            tuning,
            len(part),
            index.info.dimension,
            is_on_gpu=self._gpu_number is not None,
            rows_exceed_memory=self._rows_exceed_memory,
        )
        # Refused once, it is tried again when the number of items has doubled.
        attempt = (tuning, index_types[0], len(part).bit_length())
        is_refused = work.refused == attempt
        is_other = all(is_outdated(part.index_type, each) for each in index_types)
        if work.is_rebuild_asked or needs_rebuild(part) or (is_other and not is_refused):
            if is_refused and not work.is_rebuild_asked:
                index_types = [FLAT]  # dead rows must go all the same, or each step would try again
            work.is_rebuild_asked = False
            work.activity = f"building {index_types[0]}"
            try:
                with MAINTENANCE_DURATION.labels("rebuild").time():
                    rebuild(
                        index_id,
                        index,
                        modality,
                        index_types,
                        tuning,
                        gpu_number=self._gpu_number,
                        is_stopped=self._stop.is_set,
                    )
                self._live_recall.forget(index_id)
                work.refused = None
                has_faiss_index = index_types != [FLAT]
                self.snapshots.note_build(index_id, modality, has_faiss_index=has_faiss_index)
            except IndexTypeInvalid as error:
                work.refused = attempt
                part.fallback = Fallback(SearchFallback.NOT_BUILT, error.message)
                log.error("index not built", index_id=index_id, why=error.message)
            finally:
                work.activity = ""
            return True
        if needs_fold(part):
            tail_count = part.tail_count
            with MAINTENANCE_DURATION.labels("fold").time():
                fold(index, modality, self._stop.is_set)
            if tail_count > CHANGED_SHARE * len(part):  # or the next start would fold it again
                self.snapshots.note_build(index_id, modality, has_faiss_index=True)
            return True
        return False

    def _snapshot_if_due(self, index_id: str, index: SearchableIndex) -> bool:
        if not self.snapshots.is_due(index_id, index):
            return False
        works = [self._of(index_id, modality) for modality in Modality]
        for work in works:
            work.activity = "writing a snapshot"
        try:
            with MAINTENANCE_DURATION.labels("snapshot").time():
                self.snapshots.write(index_id, index)
        finally:
            for work in works:
                work.activity = ""
        return True

    def _measure_imbalance(self) -> None:
        """Sets each modality's gauge to its worst index; 1 where no index has lists."""
        indexes = list(self._indexes().values())
        for modality in Modality:
            parts = (index.part(modality).faiss_index for index in indexes)
            factors = (part.list_imbalance() for part in parts if part is not None)
            LIST_IMBALANCE.labels(self._shard, modality.value).set(
                max((factor for factor in factors if factor is not None), default=1.0)
            )

    def _of(self, index_id: str, modality: Modality) -> _Work:
        return self._work.setdefault((index_id, modality), _Work())
