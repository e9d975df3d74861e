"""Decides when an index is due for a snapshot, writes it and knows what the newest one covers."""

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tandem.contract.content import Modality
from tandem.local.shard.metrics import SNAPSHOT_SEQUENCE
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.snapshot import (
    MANIFEST,
    FrozenPart,
    SnapshotIdentity,
    remove_other_snapshots,
    snapshot_folder,
    write_snapshot,
)

CHANGED_SHARE = 0.2


@dataclass(slots=True)
class _Newest:
    """Describes the newest snapshot of one modality of one index."""

    change_count: int = 0
    sequence: int | None = None
    wall_time: float | None = None
    """On the wall clock: snapshots outlive processes."""
    lacks_build: bool = False
    """A FAISS index was built since."""


class SnapshotSchedule:
    """Writes snapshots of both modalities at one sequence, where either has changed enough."""

    def __init__(
        self,
        folder: Path,
        store_id: str,
        min_change_count: int,
        applied_sequence: Callable[[], int],
        shard: str,
    ) -> None:
        """Writes nothing yet; `applied_sequence` is the shard's, and `shard` labels its gauge."""
        self._folder = folder
        self._store_id = store_id
        self._min_change_count = min_change_count
        self._applied_sequence = applied_sequence
        self._shard = shard
        self._newest: dict[tuple[str, Modality], _Newest] = {}
        self._forgotten: set[str] = set()

    def note_loaded(self, index_id: str, modality: Modality, sequence: int) -> None:
        """Notes that the index was read from a snapshot."""
        newest = self._of(index_id, modality)
        newest.sequence = sequence
        folder = snapshot_folder(self._folder / index_id, modality, sequence)
        with contextlib.suppress(OSError):
            newest.wall_time = (folder / MANIFEST).stat().st_mtime

    def note_build(self, index_id: str, modality: Modality, *, has_faiss_index: bool) -> None:
        """Notes that the index was rebuilt."""
        self._of(index_id, modality).lacks_build = has_faiss_index

    def forget(self, index_id: str) -> None:
        """Forgets an index that was dropped; remove_forgotten() removes its snapshots."""
        for modality in Modality:
            self._newest.pop((index_id, modality), None)
        self._forgotten.add(index_id)

    def remove_forgotten(self, indexes: Mapping[str, SearchableIndex]) -> None:
        """Removes the snapshots of dropped indexes; call it while no snapshot is being written."""
        for index_id in list(self._forgotten):
            if index_id not in indexes:  # or it was created again meanwhile
                shutil.rmtree(self._folder / index_id, ignore_errors=True)
            self._forgotten.discard(index_id)

    def is_due(self, index_id: str, index: SearchableIndex) -> bool:
        """Returns whether either modality changed enough, or has a new FAISS index worth saving."""
        return any(self._is_modality_due(index_id, index, modality) for modality in Modality)

    def write(self, index_id: str, index: SearchableIndex) -> int:
        """Writes the index as it stands and returns the sequence that the snapshot covers."""
        parent = self._folder / index_id
        # Read before the items: they have each change up to here, and later ones do no harm.
        sequence = self._applied_sequence()
        change_counts = {}
        index.save_rows(1)
        for modality in Modality:
            with index.reading():
                part = index.part(modality)
                frozen = FrozenPart.of(part)
                change_counts[modality] = part.change_count
            identity = SnapshotIdentity(
                store_id=self._store_id,
                index_id=index_id,
                modality=modality.value,
                fingerprint=index.info.fingerprint,
                dimension=index.info.dimension,
                sequence=sequence,
            )
            write_snapshot(parent, frozen, identity)
        # Only now: a snapshot of one modality alone is useless.
        for modality, change_count in change_counts.items():
            remove_other_snapshots(parent, sequence, modality)
            self._newest[index_id, modality] = _Newest(change_count, sequence, time.time())
        SNAPSHOT_SEQUENCE.labels(self._shard).set(sequence)
        return sequence

    def sequence(self, index_id: str, modality: Modality) -> int | None:
        return self._of(index_id, modality).sequence

    def age_seconds(self) -> float | None:
        """Returns the largest age over the indexes' newest snapshots; None where there are none."""
        times = [each.wall_time for each in list(self._newest.values())]
        oldest_time = min((each for each in times if each is not None), default=None)
        return None if oldest_time is None else max(0.0, time.time() - oldest_time)

    def unsaved_change_count(self, indexes: Mapping[str, SearchableIndex]) -> int:
        """Returns the most changes since the newest snapshot over all indexes and modalities."""
        counts = (
            self._change_count(index_id, index, modality)
            for index_id, index in list(indexes.items())
            for modality in Modality
        )
        return max(counts, default=0)

    def _is_modality_due(self, index_id: str, index: SearchableIndex, modality: Modality) -> bool:
        item_count = index.item_count(modality)
        if self._of(index_id, modality).lacks_build and item_count >= self._min_change_count:
            return True  # or each start would build it again
        least_count = max(self._min_change_count, CHANGED_SHARE * item_count)
        return self._change_count(index_id, index, modality) >= least_count

    def _change_count(self, index_id: str, index: SearchableIndex, modality: Modality) -> int:
        return index.part(modality).change_count - self._of(index_id, modality).change_count

    def _of(self, index_id: str, modality: Modality) -> _Newest:
        return self._newest.setdefault((index_id, modality), _Newest())
