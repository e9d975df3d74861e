"""Writes and reads a snapshot: one modality of one index on disk, for fast starts.

    snapshots/INDEX_ID/MODALITY-SEQUENCE/
        manifest.json   identity, and the size and SHA-256 of every other file
        rows.f32        embeddings by row, little-endian float32; a link to the file that the
                        process maps, so rows that are not of the snapshot may follow
        live            one bit a row
        item_ids        separated by NUL
        attributes.json [row, attributes] of the rows that have any
        faiss.index     if there is a FAISS index

A snapshot is derived from the item store, so it is never trusted: FAISS silently reads a file with
flipped bits and then answers wrongly. It is opened only if a child process has verified every byte,
and its manifest names this store, this model and this log. Otherwise it is ignored, and the next
one replaces it.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np

from tandem.contract.content import Modality
from tandem.contract.filtering.attributes import Attributes
from tandem.local.shard.retrieval.arrays import Mask
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.faiss_index import FaissIndex
from tandem.local.shard.retrieval.modality_index import ModalityIndex
from tandem.local.shard.retrieval.row_file import FileEntry, map_rows, read_sha256

SCHEMA_VERSION = 2
MANIFEST = "manifest.json"
ROWS = "rows.f32"
PARTIAL_SUFFIX = ".partial"


class SnapshotInvalid(Exception):
    """Raised for files that are damaged or of something else; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotIdentity:
    """Says what a snapshot is of."""

    store_id: str
    index_id: str
    modality: str
    fingerprint: str
    dimension: int
    sequence: int
    """The last change of the store in it."""
    metric: str = "inner product"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotManifest(SnapshotIdentity):
    """Describes the contents of a snapshot."""

    schema_version: int
    row_count: int
    live_count: int
    index_type: str
    index_row_count: int
    """Rows in the FAISS index."""
    parameters: Mapping[str, float]
    recall_percent: float | None
    """Of the FAISS index, measured when it was built."""
    faiss_version: str
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    """All but the rows."""
    row_pieces: Sequence[FileEntry] = ()
    """Of the file of rows, which other rows may follow."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises SnapshotInvalid unless it is whole, unchanged and of this schema."""
        try:
            sealed = json.loads((folder / MANIFEST).read_bytes())
            body = sealed["manifest"]
            if sealed["sha256"] != _digest(body):
                raise SnapshotInvalid(f"{folder / MANIFEST} is not as it was written")
            if body["schema_version"] != SCHEMA_VERSION:
                raise SnapshotInvalid(
                    f"{folder / MANIFEST} has schema version {body['schema_version']}, this "
                    f"program reads {SCHEMA_VERSION}"
                )
            files = {name: FileEntry(**entry) for name, entry in body.pop("files").items()}
            pieces = [FileEntry(**piece) for piece in body.pop("row_pieces")]
            return cls(**body, files=files, row_pieces=pieces)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise SnapshotInvalid(f"{folder / MANIFEST} cannot be read: {error}") from error

    def write(self, folder: Path) -> None:
        """Writes the manifest durably."""
        body = asdict(self)
        text = json.dumps({"sha256": _digest(body), "manifest": body}, indent=1)
        _write(folder / MANIFEST, [text.encode()])

    def check_identity(self, folder: Path, expected: SnapshotIdentity) -> None:
        """Raises SnapshotInvalid where it is of something else."""
        for name, value in asdict(expected).items():
            if (found := getattr(self, name)) != value:
                raise SnapshotInvalid(f"{folder} is of {name} {found!r}, not {value!r}")

    def check_files(self, folder: Path) -> None:
        """Raises SnapshotInvalid unless every file has its size and SHA-256."""
        for name, entry in self.files.items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != entry.size_bytes:
                raise SnapshotInvalid(
                    f"{path} is missing, or does not have {entry.size_bytes:,} bytes"
                )
            if sha256_of(path) != entry.sha256:
                raise SnapshotInvalid(f"{path} is not as it was written: another SHA-256")
        self._check_rows(folder / ROWS)

    def _check_rows(self, path: Path) -> None:
        size_bytes = sum(piece.size_bytes for piece in self.row_pieces)
        if size_bytes != 4 * self.row_count * self.dimension:
            raise SnapshotInvalid(f"{path} does not hold {self.row_count:,} x {self.dimension}")
        if not self.row_count:
            return
        if not path.is_file():
            raise SnapshotInvalid(f"{path} is missing")
        with path.open("rb") as file:
            for piece in self.row_pieces:
                if read_sha256(file, piece.size_bytes) != piece.sha256:
                    raise SnapshotInvalid(f"{path} is not as it was written: another SHA-256")


@dataclass(frozen=True, slots=True, eq=False)
class FrozenPart:
    """Holds one modality as it was at one moment; later changes do not affect it."""

    rows_path: Path
    row_pieces: Sequence[FileEntry]
    item_ids: bytes
    """Each followed by NUL."""
    live: Mask
    attributes: Mapping[int, Attributes]
    faiss_index: FaissIndex | None
    """Must not get rows while the snapshot is written."""
    recall_percent: float | None

    @classmethod
    def of(cls, part: ModalityIndex) -> Self:
        """Freezes the rows that are in the file; the part must not change during this call."""
        file = part.rows.file
        assert file is not None
        pieces = file.pieces.copy()  # once, as another thread may add to them
        count = sum(piece.size_bytes for piece in pieces) // (4 * part.rows.dimension)
        return cls(
            rows_path=file.path,
            row_pieces=pieces,
            item_ids=part.rows.ids.separated(count),
            live=part.rows.live[:count].copy(),
            attributes={row: value for row, value in part.attributes.items() if row < count},
            faiss_index=part.faiss_index,
            recall_percent=part.recall_percent,
        )


def write_snapshot(parent: Path, part: FrozenPart, identity: SnapshotIdentity) -> Path:
    """Writes a snapshot and returns its folder, which appears complete or not at all."""
    folder = snapshot_folder(parent, Modality(identity.modality), identity.sequence)
    partial = folder.with_name(folder.name + PARTIAL_SUFFIX)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        files = _write_files(partial, part)
        SnapshotManifest(
            **asdict(identity),
            schema_version=SCHEMA_VERSION,
            row_count=len(part.live),
            live_count=int(np.count_nonzero(part.live)),
            index_type="" if part.faiss_index is None else part.faiss_index.index_type,
            index_row_count=0 if part.faiss_index is None else part.faiss_index.row_count,
            parameters={} if part.faiss_index is None else part.faiss_index.parameters,
            recall_percent=part.recall_percent,
            faiss_version=faiss.__version__,
            files=files,
            row_pieces=part.row_pieces,
        ).write(partial)
        _sync(partial)
    except BaseException:
        # On a full disk it would take the space that writes wait for.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)  # of the same sequence, so with the same items
    partial.rename(folder)
    _sync(parent)
    return folder


def _write_files(folder: Path, part: FrozenPart) -> dict[str, FileEntry]:
    # JSON turns tuples, and nothing else, into lists.
    attributes = [[row, dict(value)] for row, value in part.attributes.items()]
    if part.row_pieces:
        os.link(part.rows_path, folder / ROWS)
    files = {
        "live": _write(folder / "live", [np.packbits(part.live, bitorder="little").tobytes()]),
        "item_ids": _write(folder / "item_ids", [part.item_ids[:-1]]),
        "attributes.json": _write(folder / "attributes.json", [json.dumps(attributes).encode()]),
    }
    if part.faiss_index is not None:
        path = folder / "faiss.index"
        part.faiss_index.write(path)
        _sync(path)
        files[path.name] = FileEntry(path.stat().st_size, sha256_of(path))
    return files


def read_snapshot(
    folder: Path, manifest: SnapshotManifest, gpu_number: int | None = None
) -> ModalityIndex:
    """Reads a snapshot; raises SnapshotInvalid where its files do not fit together.

    The files must have been verified: see snapshot_check.py.
    """
    count, dimension = manifest.row_count, manifest.dimension
    embeddings_ND = map_rows(folder / ROWS, count, dimension)
    item_ids = (folder / "item_ids").read_bytes() + b"\0" if count else b""
    bits = np.frombuffer((folder / "live").read_bytes(), dtype=np.uint8)
    live = np.unpackbits(bits, count=count, bitorder="little").astype(np.bool_)
    if item_ids.count(b"\0") != count or np.count_nonzero(live) != manifest.live_count:
        raise SnapshotInvalid(f"{folder} has other item ids or live rows than {count:,} rows need")
    part = ModalityIndex(EmbeddingRows(dimension, embeddings_ND, item_ids, live))
    for row, value in json.loads((folder / "attributes.json").read_bytes()):
        part.put_attributes(row, _from_json(value))
    if manifest.index_type:
        index = FaissIndex.read(folder / "faiss.index", manifest.index_type, gpu_number)
        if index.row_count != manifest.index_row_count or index.dimension != dimension:
            raise SnapshotInvalid(f"{folder}/faiss.index is not over these rows")
        index.tune(manifest.parameters)
        part.faiss_index = index
        part.recall_percent = manifest.recall_percent
    return part


def snapshot_folder(parent: Path, modality: Modality, sequence: int) -> Path:
    """Returns the folder of a snapshot, whether or not it exists."""
    return parent / f"{modality.value}-{sequence:020d}"


def snapshot_sequences(parent: Path) -> list[int]:
    """Returns the sequences at which every modality has a snapshot, newest first."""
    found = [
        {
            int(path.name.removeprefix(f"{modality.value}-"))
            for path in _snapshots(parent, modality)
            if path.suffix != PARTIAL_SUFFIX
        }
        for modality in Modality
    ]
    return sorted(set.intersection(*found), reverse=True)


def remove_other_snapshots(parent: Path, sequence: int, modality: Modality) -> None:
    """Removes the modality's other snapshots, including partial ones."""
    for path in _snapshots(parent, modality):
        if path != snapshot_folder(parent, modality, sequence):
            shutil.rmtree(path, ignore_errors=True)


def _snapshots(parent: Path, modality: Modality) -> list[Path]:
    """Returns the modality's snapshots and partial ones, and nothing that an operator put there."""
    name = re.compile(rf"{modality.value}-\d{{20}}({re.escape(PARTIAL_SUFFIX)})?")
    return [path for path in parent.glob(f"{modality.value}-*") if name.fullmatch(path.name)]


def remove_partial_snapshots(parent: Path) -> None:
    """Removes partial snapshots of killed processes."""
    for path in parent.glob(f"*{PARTIAL_SUFFIX}"):
        shutil.rmtree(path, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """Returns the file's SHA-256 in hexadecimal, read in pieces."""
    with path.open("rb") as file:
        return read_sha256(file, path.stat().st_size)


def _write(path: Path, pieces: Iterator[Any] | Sequence[Any]) -> FileEntry:
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("wb") as file:
        for piece in pieces:
            digest.update(piece)
            size_bytes += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(size_bytes, digest.hexdigest())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _from_json(attributes: Mapping[str, Any]) -> Attributes:
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
    }
