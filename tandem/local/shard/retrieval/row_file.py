"""Keeps rows of embeddings in a file that only grows, and maps what was read back intact."""

import hashlib
import mmap
import os
import secrets
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from tandem.local.shard.retrieval.arrays import F32, I64

_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FileEntry:
    """Describes a file, or a piece of one, as it was written."""

    size_bytes: int
    sha256: str


class RowFile:
    """Holds the first rows of one modality; each is written and verified once.

    Snapshots link the file instead of copying it, so other rows may follow theirs. One thread at a
    time may call append().
    """

    def __init__(
        self,
        folder: Path,
        dimension: int,
        source: Path | None = None,
        pieces: Sequence[FileEntry] = (),
    ) -> None:
        """Takes over the pieces of a snapshot's file, and drops what follows them.

        Without one, it creates nothing before the first append().
        """
        self.path = folder / f"{secrets.token_hex(8)}.f32"
        self.pieces = list(pieces)
        self._dimension = dimension
        if source is not None:
            folder.mkdir(parents=True, exist_ok=True)
            os.link(source, self.path)
            os.truncate(self.path, self._size_bytes)
        # The name goes with this object; mapped rows and the links of snapshots stay.
        weakref.finalize(self, self.path.unlink, missing_ok=True)

    @property
    def row_count(self) -> int:
        return self._size_bytes // (4 * self._dimension)

    def append(self, blocks: Iterable[F32]) -> None:
        """Adds rows, durably; they count only once the disk returned them as they are.

        Raises OSError, for example where the disk is full.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        start, written = self._size_bytes, hashlib.sha256()
        with self.path.open("r+b" if start else "w+b") as file:
            file.seek(start)
            for block_ND in blocks:
                data = np.ascontiguousarray(block_ND, "<f4").data
                written.update(data)
                file.write(data)
            size_bytes = file.tell() - start
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
            # So that the next read is from the disk.
            os.posix_fadvise(file.fileno(), start, 0, os.POSIX_FADV_DONTNEED)
            file.seek(start)
            if read_sha256(file, size_bytes) != written.hexdigest():
                raise OSError(f"{self.path} was not read back as it was written")
        self.pieces.append(FileEntry(size_bytes, written.hexdigest()))

    def mapped(self) -> F32:
        """Returns the rows, mapped from the file, [row_count, d]."""
        return map_rows(self.path, self.row_count, self._dimension)

    def prefetch(self, rows: I64) -> None:
        """Has the disk read rows at the same time, without what lies around them."""
        row_bytes = 4 * self._dimension
        with suppress(OSError), self.path.open("rb", buffering=0) as file:  # a hint, no more
            for start in (row_bytes * rows).tolist():
                os.posix_fadvise(file.fileno(), start, row_bytes, os.POSIX_FADV_WILLNEED)

    @property
    def _size_bytes(self) -> int:
        return sum(piece.size_bytes for piece in self.pieces)


def map_rows(path: Path, row_count: int, dimension: int) -> F32:
    """Maps the first rows of a file of float32 values, [row_count, d]."""
    if not row_count:
        return np.empty((0, dimension), np.float32)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 4 * row_count * dimension, prot=mmap.PROT_READ)
    return np.frombuffer(mapped, "<f4").reshape(row_count, dimension)


def read_sha256(file: IO[bytes], size_bytes: int) -> str:
    """Returns the SHA-256 in hexadecimal of the next bytes, fewer where the file ends."""
    digest = hashlib.sha256()
    while size_bytes > 0 and (piece := file.read(min(size_bytes, _READ_BYTES))):
        digest.update(piece)
        size_bytes -= len(piece)
    return digest.hexdigest()
