"""Rebuilds the FAISS index of one modality, or adds the newest rows to it."""

import time
from collections.abc import Callable, Sequence

import numpy as np

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.content import Modality
from tandem.contract.search_path import NO_FALLBACK, Fallback, SearchFallback
from tandem.local.shard.retrieval.embedding_rows import BLOCK_ROW_COUNT, EmbeddingRows
from tandem.local.shard.retrieval.index_type import FLAT, IndexTuning
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.row_file import RowFile
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.index_build import build_index
from tandem.local.shard.upkeep.recall_sample import RecallSample

log = get_logger()

# 2,000 x 384 values are compared in a tenth of a millisecond.
_FOLD_COUNT = 2_048
# Searches wait at most about this long at a time; the first slice has so many rows.
_FOLD_SLICE_SECONDS = 0.002
_FIRST_SLICE_COUNT = 16
_DEAD_SHARE = 0.25
_MIN_DEAD_COUNT = 1_000
_COMPACT_SHARE = 0.1
_OUTGROWN_SHARE = 0.1
_COPY_COUNT = 8_192
_BEING_BUILT = Fallback(SearchFallback.BEING_BUILT, "the index is being built")


def needs_rebuild(part: ModalityIndex) -> bool:
    """Returns whether too many rows are dead, or too many are missing in a fixed FAISS index."""
    if part.rows.dead_count > max(_MIN_DEAD_COUNT, _DEAD_SHARE * part.rows.row_count):
        return True
    if part.faiss_index is None or part.faiss_index.takes_rows:
        return False
    return part.tail_count > max(_FOLD_COUNT, _OUTGROWN_SHARE * part.rows.row_count)


def needs_fold(part: ModalityIndex) -> bool:
    """Returns whether enough rows are missing in a FAISS index that takes more."""
    index = part.faiss_index
    return index is not None and index.takes_rows and part.tail_count > _FOLD_COUNT


def rebuild(
    index_id: str,
    index: SearchableIndex,
    modality: Modality,
    index_types: Sequence[str],
    tuning: IndexTuning,
    *,
    gpu_number: int | None,
    is_stopped: Callable[[], bool],
) -> None:
    """Builds a new FAISS index and swaps it in, dropping dead rows where there are many.

    Searches and changes continue, except for moments. Raises IndexTypeInvalid.
    """
    part = index.part(modality)
    is_compacted = part.rows.dead_count > _COMPACT_SHARE * part.rows.row_count
    is_flat = list(index_types) == [FLAT]
    if part.faiss_index is None and not is_flat:
        # The build clears it, and its failure replaces it with another reason.
        part.fallback = _BEING_BUILT
    try:
        built = _copy_live(index, modality) if is_compacted else part
        faiss_index, recall_percent = None, None
        if not is_flat:
            with index.reading():
                rows = built.rows.frozen()
                others = index.part(modality.other).rows.frozen()
            sample = RecallSample.draw(rows, others)
            faiss_index, measured = build_index(
                index_types, sample, tuning, gpu_number=gpu_number, is_stopped=is_stopped
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
    log.info(
        "index built",
        index_id=index_id,
        modality=modality.value,
        index_type=FLAT if faiss_index is None else faiss_index.index_type,
        recall_percent=recall_percent,
    )


def fold(index: SearchableIndex, modality: Modality, is_stopped: Callable[[], bool]) -> None:
    """Adds the rows that the FAISS index does not have yet, a slice at a time."""
    part = index.part(modality)
    faiss_index = part.faiss_index
    assert faiss_index is not None
    stop_row = part.rows.row_count
    slice_count = _FIRST_SLICE_COUNT
    while faiss_index.row_count < stop_row and not is_stopped():
        with index.changing():
            start_time = time.perf_counter()
            faiss_index.add(part.rows, min(stop_row, faiss_index.row_count + slice_count))
            seconds = time.perf_counter() - start_time
        # Searches wait meanwhile, and the cost of a row differs a hundredfold between types.
        is_short = seconds < _FOLD_SLICE_SECONDS
        slice_count = slice_count * 2 if is_short else max(1, slice_count // 2)
        # A lock that is taken again at once is never free for those that wait for it.
        time.sleep(seconds / 2)


def _copy_live(index: SearchableIndex, modality: Modality) -> ModalityIndex:
    part = index.part(modality)
    with index.reading():  # keeps changes from coming between these
        index.begin_replacing(modality)
        # Frozen: saving puts mapped rows in the place of blocks at any time.
        rows = part.rows.frozen()
        attributes = part.attributes.copy()
    live, dimension = np.flatnonzero(rows.live), rows.dimension
    file = part.rows.file and RowFile(part.rows.file.path.parent, dimension)
    copied = ModalityIndex(EmbeddingRows(dimension, file=file))
    for start in range(0, len(live), _COPY_COUNT):
        old_rows = live[start : start + _COPY_COUNT]
        new_rows = copied.rows.append(rows.ids.ids_of(old_rows), rows.gather(old_rows))
        for old_row, new_row in zip(old_rows.tolist(), new_rows, strict=True):
            if known := attributes.get(old_row):
                copied.put_attributes(new_row, known)
        if copied.rows.unsaved_count >= BLOCK_ROW_COUNT:
            copied.rows.save()
    return copied
