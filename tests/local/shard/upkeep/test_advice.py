"""Tests what is measured of each FAISS type; test_admin_servicer tests it through the service."""

from collections.abc import Sequence

import pytest

from tandem.contract.content import Modality
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.searchable_index import SearchableIndex
from tandem.local.shard.upkeep.advice import MeasuredType, measure_types
from tandem.stages.index_info import IndexInfo
from tests.support.index_svc.unit_rows import DIMENSION, unit_rows

TYPES = ("Flat", "IVF16,SQ8", "IVF4096,Flat")


@pytest.fixture(name="index")
def _index() -> SearchableIndex:
    """600 images and 300 texts."""
    parts = {
        Modality.IMAGE: ModalityIndex(unit_rows(600, 1)),
        Modality.TEXT: ModalityIndex(unit_rows(300, 2)),
    }
    return SearchableIndex(IndexInfo("model-a", DIMENSION), parts)


def measured(
    index: SearchableIndex, memory_bytes: int = 0, types: Sequence[str] = TYPES
) -> list[MeasuredType]:
    """Returns the measurements of the images."""
    tuning = IndexTuning(recall_target=0.9, memory_bytes=memory_bytes)
    return list(measure_types(index, Modality.IMAGE, tuning, types))


def test_a_type_fits_that_finds_enough_within_the_memory(index: SearchableIndex) -> None:
    """The codes of 600 embeddings in SQ8 take at least a byte a dimension; Flat takes none."""
    flat, ivf, impossible = measured(index)
    _, no_memory, _ = measured(index, memory_bytes=600 * DIMENSION)

    assert (flat.recall_percent, flat.index_bytes, flat.fits) == (100, 0, True)
    assert ivf.recall_percent >= 90
    assert ivf.index_bytes > 600 * DIMENSION
    assert (ivf.fits, no_memory.fits) == (True, False)
    assert 0 < ivf.search_p50_seconds <= ivf.search_p99_seconds
    assert (impossible.fits, impossible.index_bytes) == (False, 0)
    assert "4096" in impossible.refusal


def test_without_items_each_type_has_its_refusal() -> None:
    empty = SearchableIndex(IndexInfo("model-a", DIMENSION))

    refusals = [each.refusal for each in measured(empty, types=["Flat", "SQ8"])]

    assert len(refusals) == 2
    assert all("it has no image to measure; ingest some" in each for each in refusals)
