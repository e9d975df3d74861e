"""What one thread does for a shard's indexes in the background, while they are searched.

It alone changes FAISS indexes and writes snapshots, one thing at a time:

    rebuild   another type, or far more items, or too many dead rows: build aside, swap
    fold      items added since go from the tail, compared one by one, into the FAISS index
    snapshot  enough has changed since the last one
    recall    searches sampled from users are done again, exactly
"""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from index_svc.metrics import (
    LIST_IMBALANCE,
    LIVE_RECALL,
    LIVE_RECALL_SEARCHES,
    MAINTENANCE_DURATION,
    MAINTENANCE_FAILURES,
    REBUILD_REQUESTS,
    SNAPSHOT_SEQUENCE,
)
from index_svc.retrieval.embedding_rows import EmbeddingRows
from index_svc.retrieval.faiss_index import FaissIndex
from index_svc.retrieval.faiss_threads import keep_faiss_in_this_thread
from index_svc.retrieval.index_type import AUTO, FLAT, IndexTuning, choose_index_types, is_outdated
from index_svc.retrieval.modality_index import ModalityIndex
from index_svc.retrieval.searchable_index import SearchableIndex
from index_svc.upkeep.index_build import build_index
from index_svc.upkeep.live_recall import DIRECTIONS, LiveRecall
from index_svc.upkeep.recall_sample import RecallSample
from index_svc.upkeep.snapshot import (
    MANIFEST,
    FrozenPart,
    remove_other_snapshots,
    snapshot_folder,
    write_snapshot,
)
from index_svc.upkeep.tuning_file import TuningFile
from tandem.chassis.log import get_logger
from tandem.contract.content import Modality
from tandem.contract.search_path import NO_FALLBACK, Fallback, SearchFallback
from tandem.errors import IndexTypeInvalid

log = get_logger()

_TICK_SECONDS = 0.2
# 2,000 x 384 values are compared in a tenth of a millisecond.
_FOLD_COUNT = 2_048
# How long searches may be held off at a time, and with how many rows to begin.
_FOLD_SLICE_SECONDS = 0.002
_FIRST_SLICE_COUNT = 16
_DEAD_SHARE = 0.25
_MIN_DEAD_COUNT = 1_000
_COMPACT_SHARE = 0.1
_OUTGROWN_SHARE = 0.1
_BEING_BUILT = Fallback(SearchFallback.BEING_BUILT, "the index is being built")
_COPY_COUNT = 8_192
_SNAPSHOT_SHARE = 0.2
_MIN_RECALL_SEARCH_COUNT = 30
_RECALL_PER_TICK = 4
# Times as long as a search that is done again took: at most a twentieth of a core goes into that.
_RECALL_PAUSE = 19
# A disk that was full a moment ago is full now.
_FAILURE_PAUSE_SECONDS = 30.0


@dataclass(slots=True)
class _Progress:
    """What this thread remembers of one modality of one index."""

    change_count_at_snapshot: int = 0
    snapshot_sequence: int | None = None
    snapshot_time: float | None = None
    """On the wall clock: snapshots outlive processes."""
    is_rebuild_asked: bool = False
    is_build_unsaved: bool = False
    """A FAISS index was built since the last snapshot."""
    refused: tuple[IndexTuning, str, int] | None = None
    activity: str = ""
    mend_after_time: float = 0.0
    """On the monotonic clock: one rebuild a window, for the next shows only then what it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """How eagerly a shard's indexes are looked after."""

    snapshots_folder: Path
    store_id: str
    min_snapshot_change_count: int = 5_000
    recall_floor: float = 0.95
    """Live recall below it asks for a rebuild."""
    gpu_number: int | None = None


@dataclass(slots=True)
class Maintenance:
    """Looks after the indexes that `indexes` returns; `applied_sequence` is the shard's."""

    settings: MaintenanceSettings
    indexes: Callable[[], Mapping[str, SearchableIndex]]
    applied_sequence: Callable[[], int]
    tunings: TuningFile
    live_recall: LiveRecall
    _progress: dict[tuple[str, Modality], _Progress] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _stop: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _recall_after_time: float = 0.0
    """On the monotonic clock."""

    def start(self) -> None:
        """Begins to look after them, in a thread."""
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the step under way; a build that trains is not waited for."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def ask_rebuild(self, index_id: str, modality: Modality, cause: str) -> None:
        """Has the index built anew soon."""
        REBUILD_REQUESTS.labels(cause).inc()
        self._of(index_id, modality).is_rebuild_asked = True
        self._wake.set()

    def note_snapshot(self, index_id: str, modality: Modality, sequence: int) -> None:
        """Notes that the index was read from a snapshot."""
        progress = self._of(index_id, modality)
        progress.snapshot_sequence = sequence
        folder = snapshot_folder(self.settings.snapshots_folder / index_id, modality, sequence)
        with contextlib.suppress(OSError):
            progress.snapshot_time = (folder / MANIFEST).stat().st_mtime

    def forget(self, index_id: str) -> None:
        """Begins anew with an index that was dropped; its snapshots are removed soon."""
        for modality in Modality:
            self._progress.pop((index_id, modality), None)
        self._gone.add(index_id)
        self._wake.set()

    def wake(self) -> None:
        """Looks again at once: a tuning changed."""
        self._wake.set()

    def activity(self, index_id: str, modality: Modality) -> str:
        """Returns what is being done to the index; empty for nothing."""
        return self._of(index_id, modality).activity

    def snapshot_sequence(self, index_id: str, modality: Modality) -> int | None:
        """Returns what the newest snapshot covers."""
        return self._of(index_id, modality).snapshot_sequence

    def snapshot_age_seconds(self) -> float | None:
        """Returns the age of the newest snapshot of the index whose is oldest; None for none."""
        times = [each.snapshot_time for each in list(self._progress.values())]
        oldest_time = min((each for each in times if each is not None), default=None)
        return None if oldest_time is None else max(0.0, time.time() - oldest_time)

    def unsaved_change_count(self) -> int:
        """Returns the changes since the newest snapshot, of the index and modality with most."""
        return max(
            (
                index.part(modality).change_count
                - self._of(index_id, modality).change_count_at_snapshot
                for index_id, index in list(self.indexes().items())
                for modality in Modality
            ),
            default=0,
        )

    def step(self) -> bool:
        """Does the most pressing thing; returns whether there was one."""
        worked = self._check_recall()
        self._forget_dropped()
        failures: list[Exception] = []
        for index_id, index in list(self.indexes().items()):
            try:
                for modality in Modality:
                    worked |= self._look_after(index_id, index, modality)
                worked |= self._snapshot_if_due(index_id, index)
            except Exception as error:
                error.add_note(f"index {index_id}")
                failures.append(error)
        self._measure_imbalance()
        if failures:
            raise ExceptionGroup("looking after indexes", failures)
        return worked

    def _forget_dropped(self) -> None:
        """Removes what is kept of indexes that are gone, where no snapshot is being written."""
        for index_id in list(self._gone):
            if index_id not in self.indexes():  # or it was made anew meanwhile
                shutil.rmtree(self.settings.snapshots_folder / index_id, ignore_errors=True)
            self._gone.discard(index_id)

    def _run(self) -> None:
        keep_faiss_in_this_thread()  # a build takes longer, and searches beside it do not
        while not self._stop.is_set():
            try:
                worked = self.step()
            except Exception:  # nothing that goes wrong here may end the thread
                MAINTENANCE_FAILURES.inc()
                log.exception("maintenance failed")
                self._stop.wait(_FAILURE_PAUSE_SECONDS)
                continue
            if not worked:
                self._wake.wait(_TICK_SECONDS)
                self._wake.clear()

    def _look_after(self, index_id: str, index: SearchableIndex, modality: Modality) -> bool:
        part = index.part(modality)
        progress = self._of(index_id, modality)
        tuning = self.tunings.get(index_id, modality)
        wanted = choose_index_types(
            tuning,
            len(part),
            index.info.dimension,
            is_on_gpu=self.settings.gpu_number is not None,
        )
        refused_for = (tuning, wanted[0], len(part).bit_length())  # tried again when it has doubled
        is_refused = progress.refused == refused_for
        is_due = progress.is_rebuild_asked or _has_many_dead(part) or _has_outgrown(part)
        is_outdated_now = all(is_outdated(part.index_type, each) for each in wanted)
        is_other = is_outdated_now and not is_refused
        if is_due or is_other:
            if is_refused and not progress.is_rebuild_asked:
                wanted = [FLAT]  # the dead rows must go all the same, or each step would try again
            progress.is_rebuild_asked = False
            progress.activity = f"building {wanted[0]}"
            try:
                with MAINTENANCE_DURATION.labels("rebuild").time():
                    self._rebuild(index_id, index, modality, wanted, tuning)
                progress.refused = None
                progress.is_build_unsaved = wanted != [FLAT]
            except IndexTypeInvalid as error:
                progress.refused = refused_for
                part.fallback = Fallback(SearchFallback.NOT_BUILT, error.message)
                log.error("index not built", index_id=index_id, why=error.message)
            finally:
                progress.activity = ""
            return True
        if (
            part.faiss_index is not None
            and part.faiss_index.takes_rows
            and part.tail_count > _FOLD_COUNT
        ):
            with MAINTENANCE_DURATION.labels("fold").time():
                self._fold(index, part, part.faiss_index)
            return True
        return False

    def _rebuild(
        self,
        index_id: str,
        index: SearchableIndex,
        modality: Modality,
        index_types: Sequence[str],
        tuning: IndexTuning,
    ) -> None:
        """Builds aside and swaps; searches and changes go on but for moments."""
        part = index.part(modality)
        is_compacted = part.rows.dead_count > _COMPACT_SHARE * part.rows.row_count
        is_flat = list(index_types) == [FLAT]
        if part.faiss_index is None and not is_flat:
            # Cleared by the build, or by its failure, which has another reason.
            part.fallback = _BEING_BUILT
        try:
            built = self._copy_live(index, modality) if is_compacted else part
            faiss_index, recall_percent = None, None
            if not is_flat:
                with index.reading():
                    rows = built.rows.frozen()
                    others = index.part(modality.other).rows.frozen()
                faiss_index, measured = build_index(
                    index_types,
                    RecallSample.draw(rows, others),
                    tuning,
                    gpu_number=self.settings.gpu_number,
                    is_stopped=self._stop.is_set,
                )
                recall_percent = measured.percent
            if is_compacted:
                built.faiss_index, built.recall_percent = faiss_index, recall_percent
                built.change_count = part.change_count
                index.replace(modality, built)
            else:
                with index.changing():
                    part.faiss_index, part.recall_percent = faiss_index, recall_percent
                    part.fallback = NO_FALLBACK
        finally:
            if is_compacted:
                index.stop_replacing(modality)
        self.live_recall.forget(index_id)
        log.info(
            "index built",
            index_id=index_id,
            modality=modality.value,
            index_type=FLAT if faiss_index is None else faiss_index.index_type,
            recall_percent=recall_percent,
        )

    def _copy_live(self, index: SearchableIndex, modality: Modality) -> ModalityIndex:
        part = index.part(modality)
        with index.reading():  # no change comes between
            index.begin_replacing(modality)
            live = np.flatnonzero(part.rows.live)
            attributes = part.attributes.copy()
        copied = ModalityIndex(EmbeddingRows(part.rows.dimension))
        for start in range(0, len(live), _COPY_COUNT):
            old_rows = live[start : start + _COPY_COUNT]
            item_ids = [part.rows.item_id(row) for row in old_rows.tolist()]
            new_rows = copied.rows.append(item_ids, part.rows.gather(old_rows))
            for old_row, new_row in zip(old_rows.tolist(), new_rows, strict=True):
                if known := attributes.get(old_row):
                    copied.put_attributes(new_row, known)
        return copied

    def _fold(self, index: SearchableIndex, part: ModalityIndex, faiss_index: FaissIndex) -> None:
        stop_row = part.rows.row_count
        slice_count = _FIRST_SLICE_COUNT
        while faiss_index.row_count < stop_row and not self._stop.is_set():
            with index.changing():
                start_time = time.perf_counter()
                faiss_index.add(part.rows, min(stop_row, faiss_index.row_count + slice_count))
                seconds = time.perf_counter() - start_time
            # Searches wait meanwhile: types differ a hundredfold in what a row costs.
            is_short = seconds < _FOLD_SLICE_SECONDS
            slice_count = slice_count * 2 if is_short else max(1, slice_count // 2)

    def _snapshot_if_due(self, index_id: str, index: SearchableIndex) -> bool:
        """Writes both modalities, of one sequence, where either has changed enough."""
        if not any(self._is_snapshot_due(index_id, index, modality) for modality in Modality):
            return False
        with MAINTENANCE_DURATION.labels("snapshot").time():
            self.write_snapshot(index_id, index)
        return True

    def write_snapshot(self, index_id: str, index: SearchableIndex) -> int:
        """Writes the index as it stands and returns the sequence it covers."""
        parent = self.settings.snapshots_folder / index_id
        # Read before the items: each change up to here is in them, and later ones do no harm.
        sequence = self.applied_sequence()
        change_counts = {}
        for modality in Modality:
            progress = self._of(index_id, modality)
            progress.activity = "writing a snapshot"
            try:
                with index.reading():
                    part = index.part(modality)
                    frozen = FrozenPart.of(part)
                    change_counts[modality] = part.change_count
                write_snapshot(
                    parent,
                    frozen,
                    store_id=self.settings.store_id,
                    index_id=index_id,
                    modality=modality,
                    fingerprint=index.info.fingerprint,
                    dimension=index.info.dimension,
                    sequence=sequence,
                )
            finally:
                progress.activity = ""
        for modality, change_count in change_counts.items():
            # Only now: without its other half a snapshot is of no use.
            remove_other_snapshots(parent, sequence, modality)
            progress = self._of(index_id, modality)
            progress.change_count_at_snapshot = change_count
            progress.is_build_unsaved = False
            progress.snapshot_sequence = sequence
            progress.snapshot_time = time.time()
        SNAPSHOT_SEQUENCE.set(sequence)
        return sequence

    def _is_snapshot_due(self, index_id: str, index: SearchableIndex, modality: Modality) -> bool:
        part = index.part(modality)
        progress = self._of(index_id, modality)
        least_count = self.settings.min_snapshot_change_count
        if progress.is_build_unsaved and len(part) >= least_count:
            return True  # or it would be built again after the next start
        change_count = part.change_count - progress.change_count_at_snapshot
        return change_count >= max(least_count, _SNAPSHOT_SHARE * len(part))

    def _check_recall(self) -> bool:
        worked = False
        for _ in range(_RECALL_PER_TICK):
            if time.monotonic() < self._recall_after_time:
                break
            if (search := self.live_recall.take()) is None:
                break
            start_time = time.monotonic()
            index = self.indexes().get(search.index_id)
            if index is None:
                continue
            with MAINTENANCE_DURATION.labels("recall").time():
                with index.reading():
                    part = index.part(search.target_modality)
                    found = part.search(search.query, search.k, search.filter).hits
                    scan = part.frozen_scan(search.filter)
                # A million comparisons, outside the lock: changes wait for readers, and searches
                # wait for waiting changes.
                nearest = scan(search.query, search.k).hits
            self.live_recall.note(search, found, nearest)
            now = time.monotonic()
            self._recall_after_time = now + _RECALL_PAUSE * (now - start_time)
            worked = True
        measured = self.live_recall.recall()
        for direction in DIRECTIONS:
            recall, count = measured.get(direction, (math.nan, 0))
            LIVE_RECALL.labels(direction).set(recall)
            LIVE_RECALL_SEARCHES.labels(direction).set(count)
        self._mend_recall()
        return worked

    def _mend_recall(self) -> None:
        now = time.monotonic()
        for index_id in list(self.indexes()):
            for direction, (recall, count) in self.live_recall.recall(index_id).items():
                modality = Modality(direction.rpartition("_to_")[2])
                tuning = self.tunings.get(index_id, modality)
                # What an operator pinned is not mended behind their back.
                is_free = tuning.index_type == AUTO and not tuning.parameters
                progress = self._of(index_id, modality)
                is_low = recall < self.settings.recall_floor
                if count < _MIN_RECALL_SEARCH_COUNT or not is_low or now < progress.mend_after_time:
                    continue
                progress.mend_after_time = now + self.live_recall.window_seconds
                log.warning("recall low", index_id=index_id, direction=direction, recall=recall)
                if is_free:
                    self.ask_rebuild(index_id, modality, "recall")
                else:
                    REBUILD_REQUESTS.labels("recall_pinned").inc()

    def _measure_imbalance(self) -> None:
        """Tells the worst index's of each modality; 1 where none has lists, or has them no more."""
        indexes = list(self.indexes().values())
        for modality in Modality:
            parts = (index.part(modality).faiss_index for index in indexes)
            factors = (part.list_imbalance() for part in parts if part is not None)
            LIST_IMBALANCE.labels(modality.value).set(
                max((factor for factor in factors if factor is not None), default=1.0)
            )

    def _of(self, index_id: str, modality: Modality) -> _Progress:
        return self._progress.setdefault((index_id, modality), _Progress())


def _has_many_dead(part: ModalityIndex) -> bool:
    return part.rows.dead_count > max(_MIN_DEAD_COUNT, _DEAD_SHARE * part.rows.row_count)


def _has_outgrown(part: ModalityIndex) -> bool:
    """Returns whether many rows came since an index was built that takes none."""
    if part.faiss_index is None or part.faiss_index.takes_rows:
        return False
    return part.tail_count > max(_FOLD_COUNT, _OUTGROWN_SHARE * part.rows.row_count)
