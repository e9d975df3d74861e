"""Tests that tunings are stored wholly, or refused by name."""

import json
from pathlib import Path

import pytest

from tandem.contract.content import Modality
from tandem.errors import StoreFull
from tandem.local.item_store.refused import StoreRefused
from tandem.local.shard.retrieval.index_type import IndexTuning
from tandem.local.shard.upkeep.tuning_file import TuningFile
from tests.support.faults.small_disk import SmallDisk

HNSW = IndexTuning("HNSW32", {"efSearch": 64}, 0.95, 1_000)


def tuning_of(path: Path) -> IndexTuning:
    """Returns what a new start reads."""
    return TuningFile(path, IndexTuning()).get("scenes", Modality.IMAGE)


def test_a_tuning_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    tunings = TuningFile(path, IndexTuning())
    assert tuning_of(path) == IndexTuning()

    tunings.put("scenes", Modality.IMAGE, HNSW)

    assert tuning_of(path) == HNSW
    tunings.forget("scenes")
    assert tuning_of(path) == IndexTuning()


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"scenes/image": 1}',
        '{"scenes/image": {"surprise": 1}}',
        '{"scenes/image": {"index_type": 32}}',
        '{"scenes/image": {"recall_target": 98}}',
        '{"scenes/image": {"parameters": {"nprobe": "32"}}}',
    ],
)
def test_an_invalid_tuning_file_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    """With what to do: a value of another type would fail every later rebuild."""
    path = tmp_path / "tuning.json"
    path.write_text(content)

    with pytest.raises(StoreRefused, match=r"tuning\.json is not a tuning file: .*tune again"):
        tuning_of(path)


def test_whole_numbers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    tuning = {"index_type": "auto", "parameters": {"nprobe": 32}, "recall_target": 1}
    path.write_text(json.dumps({"scenes/image": tuning}))

    assert tuning_of(path) == IndexTuning("auto", {"nprobe": 32}, 1)


@pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or "")
def test_a_full_disk_keeps_the_tuning_before(tmp_path: Path) -> None:
    """The operator reads that there is no room; once there is, the tuning is stored."""
    with SmallDisk(tmp_path / "disk", 4 << 20) as disk:
        path = disk.path / "tuning.json"
        tunings = TuningFile(path, IndexTuning())
        tunings.put("scenes", Modality.IMAGE, HNSW)
        disk.fill()

        with pytest.raises(StoreFull, match="No space left on device"):
            tunings.put("scenes", Modality.IMAGE, IndexTuning("Flat"))

        assert tunings.get("scenes", Modality.IMAGE) == tuning_of(path) == HNSW
        disk.empty()
        tunings.put("scenes", Modality.IMAGE, IndexTuning("Flat"))
        assert tuning_of(path) == IndexTuning("Flat")
