"""Loads an index, from a snapshot and the changes since, or from the item store."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.content import Modality
from tandem.errors import ItemCorrupt
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding
from tandem.local.shard.metrics import CORRUPT_ITEMS, SNAPSHOTS_REFUSED
from tandem.local.shard.retrieval.row_file import RowFile
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.snapshot import (
    ROWS,
    SnapshotIdentity,
    SnapshotInvalid,
    read_snapshot,
    remove_partial_snapshots,
    snapshot_folder,
    snapshot_sequences,
)
from tandem.local.shard.upkeep.snapshot_check import check_snapshots
from tandem.stages.index_info import IndexInfo

log = get_logger()

_REPLAY_COUNT = 512


@dataclass(frozen=True, slots=True, eq=False)
class LoadedIndex:
    """Holds an up-to-date index, and the snapshot that it came from, if any."""

    index: SearchableIndex
    snapshot_sequence: int | None


def load_index(
    store: ItemStore, index_id: str, snapshots_folder: Path, gpu_number: int | None = None
) -> LoadedIndex:
    """Returns the index as the store has it now.

    A snapshot that is damaged, or of another store or model, is ignored, logged and counted. An
    item that fails its checksum is left out, logged by id and counted, so that one bad page does
    not make the other items unavailable. Reading it raises ItemCorrupt; an upsert repairs it.
    """
    info = store.index_info(index_id)
    parent = snapshots_folder / index_id
    remove_partial_snapshots(parent)
    for sequence in snapshot_sequences(parent):
        try:
            index = _read_both(store, index_id, info, snapshots_folder, sequence, gpu_number)
            replay(store, index_id, index, sequence)
            return LoadedIndex(index, sequence)
        except (SnapshotInvalid, ItemCorrupt) as error:
            SNAPSHOTS_REFUSED.inc()
            log.error("snapshot refused", index_id=index_id, why=str(error))
    index = SearchableIndex(info, rows_folder=rows_folder_beside(snapshots_folder))
    index.load(_sound(index_id, store.scan_embeddings(index_id)))
    return LoadedIndex(index, None)


def replay(store: ItemStore, index_id: str, index: SearchableIndex, sequence: int) -> None:
    """Applies the store's changes after a sequence to the index.

    Applying a change twice does no harm: each item is read as the store has it now. Raises
    SnapshotInvalid where the changes are no longer all kept.
    """
    changes = store.changes_since(sequence)
    if changes is None:
        raise SnapshotInvalid(f"the change log no longer reaches back to {sequence:,}")
    # A drop names no item: it comes after the deletes of all.
    item_ids = {
        change.item_id: None
        for change in changes
        if change.index_id == index_id and change.operation != "drop"
    }
    for batch in _batches(item_ids):
        stored = store.read_embeddings(index_id, batch)
        here = dict(zip(batch, stored, strict=True))
        index.delete([item_id for item_id, item in here.items() if item is None])
        if sound := list(_sound(index_id, (item for item in stored if item is not None))):
            index.upsert(sound)


def _read_both(
    store: ItemStore,
    index_id: str,
    info: IndexInfo,
    snapshots_folder: Path,
    sequence: int,
    gpu_number: int | None,
) -> SearchableIndex:
    parent, rows_folder = snapshots_folder / index_id, rows_folder_beside(snapshots_folder)
    folders = [snapshot_folder(parent, modality, sequence) for modality in Modality]
    parts = {}
    for modality, folder, manifest in zip(Modality, folders, check_snapshots(folders), strict=True):
        manifest.check_identity(
            folder,
            SnapshotIdentity(
                store_id=store.store_id,
                index_id=index_id,
                modality=modality.value,
                fingerprint=info.fingerprint,
                dimension=info.dimension,
                sequence=sequence,
            ),
        )
        parts[modality] = read_snapshot(folder, manifest, gpu_number)
        if manifest.row_count:
            file = RowFile(rows_folder, info.dimension, folder / ROWS, manifest.row_pieces)
            parts[modality].rows.file = file
    return SearchableIndex(info, parts, rows_folder=rows_folder)


def rows_folder_beside(snapshots_folder: Path) -> Path:
    """Returns the folder of the files that this process keeps rows in, for links of snapshots."""
    return snapshots_folder.with_name("rows")


def _batches(item_ids: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(item_ids)
    while batch := list(itertools.islice(remaining, _REPLAY_COUNT)):
        yield batch


def _sound(
    index_id: str, items: Iterable[StoredEmbedding | ItemCorrupt]
) -> Iterator[StoredEmbedding]:
    for item in items:
        if isinstance(item, ItemCorrupt):
            CORRUPT_ITEMS.inc()
            log.error("item corrupt", index_id=index_id, why=item.message)
        else:
            yield item
