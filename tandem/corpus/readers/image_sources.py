"""Gives readers the picture files that a corpus names."""

import os
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeGuard

from tandem.contract.picture_base64 import decoded_picture
from tandem.corpus.errors import (
    CorpusMalformed,
    PictureFileMissing,
    PictureIsUrl,
    PictureMissing,
    PictureOutside,
    PictureTooLarge,
)
from tandem.corpus.readers.plain_file import leads_out
from tandem.corpus.records import FileState, ImageSource

# Twice the decoder's limit, as the largest JPEGs of phones have. It keeps any file from filling the
# memory before the decoder, or a message before the server, can reject it.
MAX_READ_BYTES: Final = 64 * 2**20
PICTURE_SUFFIXES: Final = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp"),
    # What reads the picture says whether it takes these.
    *(".heic", ".heif", ".avif"),
)
URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://|//|data:", re.IGNORECASE)
# Shorter ones are names without a suffix. No picture has so few bytes.
_BASE64: Final = re.compile(r"(?:data:[^,]*;base64,)?[A-Za-z0-9+/_\s-]{64,}={0,2}\s*")


@dataclass(frozen=True, slots=True)
class ImageFile(ImageSource):
    """Reads a picture from a file."""

    path: Path
    place: str
    """Where the file is named, for messages: "list.tsv: line 3"."""
    root: Path | None = None
    """The folder that a link may not lead out of."""

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Returns the file's bytes.

        On disk, accents may be spelled differently (NFC, NFD) and the extension in other case.
        Raises PictureFileMissing for a missing file, PictureOutside for a link out of `root`, and
        PictureTooLarge over MAX_READ_BYTES.
        """
        try:
            path = self._on_disk()
            if self.root is not None and (outside := leads_out(path, self.root)):
                raise PictureOutside(f"{self.place} names {path}, which {outside}")
            # Checked first, because opening a named pipe would block forever.
            if not path.is_file():
                raise PictureFileMissing(
                    f"{self.place} names {self.path}, which is not there; download the pictures, "
                    "or give the folder that its name starts from"
                )
            check_size(str(self), path.stat().st_size)
            return path.read_bytes()
        except OSError as error:
            raise PictureFileMissing(
                f"{self.place} names {self.path}, which cannot be read: {error.strerror}"
            ) from error

    def stat(self) -> FileState | None:
        """Returns the file's state; None if it is missing."""
        return file_state(self._on_disk())

    def _on_disk(self) -> Path:
        return self.path if os.path.lexists(self.path) else _spelled_on_disk(self.path)


@dataclass(frozen=True, slots=True)
class NoImage(ImageSource):
    """Stands in for the picture of a record that names none."""

    place: str
    wanted: str
    """What is missing: "no picture next to it (…)"."""

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Raises PictureMissing."""
        raise PictureMissing(f"{self.place} has {self.wanted}; add the picture or take it out")


@dataclass(frozen=True, slots=True)
class CellImage(ImageSource):
    """Reads a picture from a cell of a table: bytes, base64, or a path.

    A path starts from the table's folder and may lead anywhere, since it is the user's own table.
    """

    cell: Any
    folder: Path
    place: str

    def __str__(self) -> str:
        return str(self._file()) if self.is_path(self.cell) else self.place

    def read(self) -> bytes:
        """Returns the picture's bytes.

        Raises PictureIsUrl, CorpusMalformed for another type, and as ImageFile does.
        """
        if self.is_path(self.cell):
            return self._file().read()
        if isinstance(self.cell, bytes):
            check_size(str(self), len(self.cell))
            return self.cell
        if not isinstance(self.cell, str):
            raise CorpusMalformed(f"{self.place} has a picture of type {type(self.cell).__name__}")
        if _BASE64.fullmatch(self.cell):
            try:
                return decoded_picture(self.cell)
            except ValueError as error:
                raise CorpusMalformed(f"{self.place} has no whole base64: {error}") from error
        raise PictureIsUrl(place=self.place, url=self.cell)

    def stat(self) -> FileState | None:
        """Returns the state of the file; None for a picture in the table."""
        return self._file().stat() if self.is_path(self.cell) else None

    @staticmethod
    def is_path(cell: Any) -> TypeGuard[str]:  # noqa: ANN401
        """Returns whether a cell is the path of a file."""
        return isinstance(cell, str) and not (_BASE64.fullmatch(cell) or URL.match(cell))

    def _file(self) -> ImageFile:
        name = self.cell.strip().replace("\0", "?")
        is_of_windows = "\\" in name and not os.path.lexists(self.folder / name)
        return ImageFile(
            self.folder / (name.replace("\\", "/") if is_of_windows else name), self.place
        )


def image_file(root: Path, name: str, place: str, walls: Path | None = None) -> ImageFile:
    """Returns the source of a picture that a corpus's file calls `name`, somewhere under `root`.

    Links may lead anywhere in `walls`, the corpus's folder, by default `root`. Raises
    CorpusMalformed for a name that leads out of `root`, or that no file can have. A missing file
    and a link out of the corpus are found when it is read.
    """
    named = PurePosixPath(name)
    # An untrusted corpus must not choose which other files of this machine are read.
    if named.is_absolute() or ".." in named.parts:
        raise CorpusMalformed(
            f"{place} names {name}, outside the image folder; correct the file name"
        )
    if not named.parts or "\0" in name:
        raise CorpusMalformed(f"{place} names the picture {name!r}; put its file name there")
    return ImageFile(root / named, place, walls or root)


def file_state(path: Path) -> FileState | None:
    """Returns a file's size and time; None if it cannot be asked."""
    try:
        stat = path.stat()
    except (OSError, ValueError):  # A name may have a lone surrogate.
        return None
    return FileState(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def check_size(place: str, size_bytes: int) -> None:
    """Raises PictureTooLarge over MAX_READ_BYTES."""
    if size_bytes > MAX_READ_BYTES:
        raise PictureTooLarge(place=place, got=size_bytes, limit=MAX_READ_BYTES)


def _spelled_on_disk(path: Path) -> Path:
    """Returns the path on disk that differs only in spelling; itself, if there is not exactly one.

    Folders' names are matched too.
    """
    parent = path.parent
    if parent == path or path.name in ("", ".."):
        return path
    if not os.path.lexists(parent):
        parent = _spelled_on_disk(parent)
    try:
        names = _names_by_spelling(str(parent), parent.stat().st_mtime_ns)
    except OSError:
        return path
    alike = names.get(_spelling(path.name), ())
    return parent / alike[0] if len(alike) == 1 else path


@lru_cache(maxsize=4)
def _names_by_spelling(folder: str, _mtime_ns: int) -> dict[str, tuple[str, ...]]:
    """Returns a folder's names; the time invalidates the cache when the folder changes."""
    names: dict[str, tuple[str, ...]] = {}
    for path in Path(folder).iterdir():
        spelling = _spelling(path.name)
        names[spelling] = (*names.get(spelling, ()), path.name)
    return names


def _spelling(name: str) -> str:
    spelled = Path(unicodedata.normalize("NFC", name))
    return spelled.stem + spelled.suffix.lower()
