"""Keeps image tokens of frozen networks on disk, so that a picture is encoded once for all runs.

A folder for each network holds:

    manifest.json   what made the tokens, and their shape
    digests.bin     32 bytes a row: sha256 of the picture's file and its view
    tokens.f16      a row for each digest: float16 [R, D]

Rows are only ever appended, tokens before digests, so a killed run leaves a file that the next one
continues. Shapes: N rows, R image tokens, D token width.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tandem.lab.training.sources.picture_views import is_crop
from tandem.platform.files.json_object import read_object
from tandem.platform.files.whole_file import write_text_whole

_DIGEST_BYTES = 32
_MANIFEST, _DIGESTS, _TOKENS = "manifest.json", "digests.bin", "tokens.f16"


def view_digest(image_bytes: bytes, view: int, stretch: float = 0.0) -> bytes:
    """Returns the key of one view of a picture's file.

    A view that depends on no stretch has the same key with any.
    """
    crop = f"/{stretch!r}".encode() if stretch and is_crop(view) else b""
    return sha256(view.to_bytes(4, "little") + sha256(image_bytes).digest() + crop).digest()


class KeptTokens:
    """Holds the tokens of one frozen network."""

    def __init__(self, folder: Path, made_by: Mapping[str, Any], shape: tuple[int, int]) -> None:
        """`made_by` identifies the network and its pixels; `shape` is (R, D)."""
        self.folder, self._shape = folder, shape
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {"made_by": dict(made_by), "shape": list(shape)}
        path = folder / _MANIFEST
        if not path.is_file():
            write_text_whole(path, json.dumps(manifest, indent=2, sort_keys=True) + "\n")
        elif (found := read_object(path)) != manifest:
            raise ValueError(
                f"{folder} keeps image tokens of {found.get('made_by')}, not of {dict(made_by)}; "
                "delete it, or name another folder with --features"
            )
        self._rows = self._read_digests()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._rows

    def add(self, digests: Sequence[bytes], tokens_NRD: NDArray[np.float16]) -> None:
        """Appends rows of views that are not there, within `writing`."""
        start = len(self._rows)
        row_bytes = 2 * self._shape[0] * self._shape[1]
        with (self.folder / _TOKENS).open("r+b") as file:
            file.truncate(start * row_bytes)
            file.seek(start * row_bytes)
            file.write(np.ascontiguousarray(tokens_NRD, np.float16).tobytes())
            file.flush()
            os.fsync(file.fileno())
        with (self.folder / _DIGESTS).open("r+b") as file:
            file.truncate(start * _DIGEST_BYTES)
            file.seek(start * _DIGEST_BYTES)
            file.write(b"".join(digests))
        self._rows.update(zip(digests, range(start, start + len(digests)), strict=True))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keeps other runs from writing, and takes over what they have written."""
        for name in (_TOKENS, _DIGESTS):
            (self.folder / name).touch()
        with (self.folder / _DIGESTS).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._rows = self._read_digests()
            yield

    def rows(self, digests: Sequence[bytes]) -> NDArray[np.int64]:
        return np.array([self._rows[digest] for digest in digests], np.int64)

    def mapped(self) -> NDArray[np.float16]:
        """Returns all tokens, [N, R, D], read from the file on demand."""
        shape = (len(self._rows), *self._shape)
        return np.memmap(self.folder / _TOKENS, np.float16, "r", shape=shape)

    def _read_digests(self) -> dict[bytes, int]:
        path, tokens = self.folder / _DIGESTS, self.folder / _TOKENS
        if not path.is_file() or not tokens.is_file():
            return {}
        content = path.read_bytes()
        whole_count = tokens.stat().st_size // (2 * self._shape[0] * self._shape[1])
        count = min(len(content) // _DIGEST_BYTES, whole_count)
        starts = range(0, count * _DIGEST_BYTES, _DIGEST_BYTES)
        return {content[start : start + _DIGEST_BYTES]: row for row, start in enumerate(starts)}
