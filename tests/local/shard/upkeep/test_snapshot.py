"""Tests that a snapshot is opened as it was written, or not at all."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tandem.contract.content import Modality
from tandem.contract.filtering.filters import OneOf
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.row_file import FileEntry, RowFile
from tandem.local.shard.upkeep.snapshot import (
    FrozenPart,
    SnapshotIdentity,
    SnapshotInvalid,
    SnapshotManifest,
    read_snapshot,
    remove_other_snapshots,
    sha256_of,
    snapshot_sequences,
    write_snapshot,
)
from tandem.local.shard.upkeep.snapshot_check import check_here, check_snapshots, limits_of
from tests.local.shard.retrieval.test_modality_index import image, index_of, many
from tests.support.grid import sampled

DIMENSION = 8


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ModalityIndex:
    """Makes 400 images with attributes, some replaced or deleted, the last not in FAISS."""
    part, _ = many(400, DIMENSION)
    part.faiss_index = FaissIndex.build("IVF4,SQ8", part.rows, part.rows.row_count)
    part.faiss_index.tune({"nprobe": 4})
    part.recall_percent = 99.5
    part.delete([str(number) for number in range(100, 150)])
    part.upsert([image("0", unit(1), tags=("a", "b"), score=2.5, shown=True)])  # type: ignore[arg-type]
    return saved(part, tmp_path_factory.mktemp("rows"))


def saved(part: ModalityIndex, folder: Path) -> ModalityIndex:
    part.rows.file = RowFile(folder, DIMENSION)
    part.rows.save()
    return part


def unit(place: int) -> np.ndarray:
    return np.eye(DIMENSION, dtype=np.float32)[place]


@pytest.fixture
def folder(part: ModalityIndex, tmp_path: Path) -> Path:
    return write(part, tmp_path)


def write(part: ModalityIndex, parent: Path, sequence: int = 7) -> Path:
    identity = SnapshotIdentity(
        store_id="store",
        index_id="scenes",
        modality=Modality.IMAGE.value,
        fingerprint="model-a",
        dimension=DIMENSION,
        sequence=sequence,
    )
    return write_snapshot(parent, FrozenPart.of(part), identity)


def test_a_written_snapshot_is_read_back(part: ModalityIndex, folder: Path) -> None:
    """Hits, similarities, attributes and parameters are the same."""
    [manifest] = check_snapshots([folder])
    read = read_snapshot(folder, manifest)

    for place in range(DIMENSION):
        assert read.search(unit(place), 20).hits == part.search(unit(place), 20).hits
    assert read.attributes == part.attributes
    assert read.search(unit(1), 5, OneOf("tags", ("b",))).hits[0].item_id == "0"
    assert read.index_type == "IVF4,SQ8"
    assert read.faiss_index is not None
    assert read.faiss_index.parameters == {"nprobe": 4}
    assert read.recall_percent == 99.5
    assert (len(read), read.rows.dead_count, read.tail_count) == (350, 51, 1)


def test_a_read_snapshot_can_be_changed(part: ModalityIndex, folder: Path) -> None:
    """Its rows are mapped from a file; new rows are not."""
    read = read_snapshot(folder, check_here(folder))

    read.upsert([image("new", unit(2)), image("1", unit(3))])
    read.delete(["2"])

    assert read.search(unit(2), 1).hits[0].item_id == "new"
    assert read.search(unit(3), 1).hits[0].item_id == "1"
    assert len(read) == 350


def test_an_operators_copy_of_a_snapshot_is_ignored(folder: Path, tmp_path: Path) -> None:
    """One with a number or a word behind its name, which stopped the start."""
    for modality in Modality:
        for ending in ("", ".1", "-old2", ".bak2"):
            (tmp_path / f"{modality.value}-{7:020d}{ending}").mkdir(exist_ok=True)

    assert snapshot_sequences(tmp_path) == [7]
    remove_other_snapshots(tmp_path, 8, Modality.IMAGE)
    assert not folder.exists()
    assert len(list(tmp_path.glob("image-*"))) == 3


def test_an_empty_part_is_kept_too(tmp_path: Path) -> None:
    """An index of images alone has an empty half of texts."""
    folder = write(saved(index_of(DIMENSION), tmp_path), tmp_path)

    assert len(read_snapshot(folder, check_here(folder))) == 0


def test_a_snapshot_exists_wholly_or_not_at_all(part: ModalityIndex, tmp_path: Path) -> None:
    """Partial files of a killed process are not a snapshot, nor is one modality alone."""
    write(part, tmp_path)
    assert snapshot_sequences(tmp_path) == []

    shutil.copytree(tmp_path / f"image-{7:020d}", tmp_path / f"text-{7:020d}")
    shutil.copytree(tmp_path / f"image-{7:020d}", tmp_path / f"text-{8:020d}.partial")
    shutil.copytree(tmp_path / f"image-{7:020d}", tmp_path / f"image-{8:020d}")

    assert snapshot_sequences(tmp_path) == [7]


@pytest.mark.parametrize("name", ["rows.f32", "live", "item_ids", "attributes.json", "faiss.index"])
@pytest.mark.parametrize(
    "damage", sampled(["flipped", "cut", "longer", "zeroed", "gone", "folder"])
)
def test_a_damaged_file_is_refused(folder: Path, name: str, damage: str) -> None:
    """One flipped bit is enough."""
    path = folder / name
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    path.unlink()
    if damage == "flipped":
        content[middle] ^= 4
    elif damage == "cut":
        content = content[:-1]
    elif damage == "longer":
        content += b"\0"
    elif damage == "zeroed":
        content[middle - 8 : middle + 8] = bytes(16)
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(content)

    manifest = SnapshotManifest.read(folder)
    if (name, damage) == ("rows.f32", "longer"):
        manifest.check_files(folder)  # rows of the process that went on may follow
        return
    with pytest.raises(SnapshotInvalid, match=name):
        manifest.check_files(folder)


def test_the_check_in_a_child_names_the_fault(folder: Path) -> None:
    path = folder / "rows.f32"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()  # the part maps this file as well
    path.write_bytes(content)

    with pytest.raises(SnapshotInvalid, match=r"rows\.f32 is not as it was written"):
        check_snapshots([folder])


def test_a_snapshot_without_a_faiss_index_is_checked_here(
    part: ModalityIndex, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are plain arrays, which kill nothing; one that FAISS reads has its child."""
    flat, _ = many(20, DIMENSION)
    plain = write(saved(flat, tmp_path / "rows"), tmp_path / "flat")
    monkeypatch.setattr(subprocess, "Popen", None)

    [manifest] = check_snapshots([plain])
    assert manifest.live_count == 20
    with pytest.raises(TypeError):
        check_snapshots([plain, folder])

    (plain / "attributes.json").write_text("[1]")
    reseal(plain, SnapshotManifest.read(plain))
    with pytest.raises(SnapshotInvalid, match=r"flat.* cannot be read"):
        check_snapshots([plain])
    (plain / "live").write_bytes(b"")
    with pytest.raises(SnapshotInvalid, match="live is missing, or does not have 3 bytes"):
        check_snapshots([plain])


def test_the_limits_of_a_check_leave_room_for_the_rows(folder: Path) -> None:
    """Ten million rows are mapped, and read, next to an index a sixth as large."""
    manifest = SnapshotManifest.read(folder)
    large = replace(manifest, row_pieces=[FileEntry(5 << 30, "")])

    more = np.subtract(limits_of([large]), limits_of([replace(manifest, row_pieces=[])]))
    assert more.tolist() == pytest.approx([5 << 30, (5 << 30) / 50e6])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence", 8),
        ("row_count", 400),
        ("dimension", 4),
        ("index_type", ""),
        ("schema_version", 3),
    ],
)
def test_a_changed_manifest_is_refused(folder: Path, field: str, value: object) -> None:
    """Its own digest detects the change."""
    path = folder / "manifest.json"
    sealed = json.loads(path.read_text())
    assert sealed["manifest"][field] != value
    sealed["manifest"][field] = value
    path.write_text(json.dumps(sealed))

    with pytest.raises(SnapshotInvalid, match="not as it was written"):
        check_snapshots([folder])


@pytest.mark.parametrize("content", [b"", b"[]", b'{"manifest": {}, "sha256": ""}'])
def test_an_invalid_manifest_is_refused(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)

    with pytest.raises(SnapshotInvalid):
        SnapshotManifest.read(folder)


def test_a_snapshot_that_kills_its_reader_is_refused(folder: Path) -> None:
    """A child killed by a signal is a verdict, and the parent survives.

    A FAISS file claims more than it has, under a manifest made to match it.
    """
    manifest = SnapshotManifest.read(folder)
    (folder / "faiss.index").write_bytes(b"IxMp" + b"\xff" * 200)
    reseal(folder, manifest)

    with pytest.raises(SnapshotInvalid):
        check_snapshots([folder])


def reseal(folder: Path, manifest: SnapshotManifest) -> None:
    """Writes a manifest that matches the files as they are now."""
    entries = {
        name: FileEntry((folder / name).stat().st_size, sha256_of(folder / name))
        for name in manifest.files
    }
    replace(manifest, files=entries).write(folder)
    SnapshotManifest.read(folder).check_files(folder)
