"""Where the bytes of a corpus's pictures lie, for readers of files that name pictures."""

import os
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from tandem.corpus.errors import (
    CorpusMalformed,
    PictureFileMissing,
    PictureMissing,
    PictureOutside,
    PictureTooLarge,
)
from tandem.corpus.readers.plain_file import leads_out

# Four times what the decoder takes: it is here so that no file, whatever it is, fills the memory
# before the decoder can refuse it, or a message before the server can.
MAX_READ_BYTES: Final = 32 * 2**20
PICTURE_SUFFIXES: Final = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp")


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image source that is a file."""

    path: Path
    place: str
    """What names it, for messages: "list.tsv: line 3"."""
    root: Path | None = None
    """The folder that it may not lead out of, by a link."""

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Returns the file's bytes.

        A name's accents may be spelled otherwise on disk (NFC, NFD), its extension in other
        letters. Raises PictureFileMissing where there is no such file, PictureOutside for a link
        out of `root`, PictureTooLarge over MAX_READ_BYTES.
        """
        try:
            path = self.path if os.path.lexists(self.path) else _spelled_on_disk(self.path)
            if self.root is not None and (outside := leads_out(path, self.root)):
                raise PictureOutside(f"{self.place} names {path}, which {outside}")
            # Asked first, because opening a named pipe would wait for ever.
            if not path.is_file():
                raise PictureFileMissing(
                    f"{self.place} names {self.path}, which is not there; fetch the pictures, or "
                    "give the folder that its name starts from"
                )
            check_size(str(self), path.stat().st_size)
            return path.read_bytes()
        except OSError as error:
            raise PictureFileMissing(
                f"{self.place} names {self.path}, which cannot be read: {error.strerror}"
            ) from error


@dataclass(frozen=True, slots=True)
class NoImage:
    """The image source of a record that names no picture."""

    place: str
    wanted: str
    """What should be there: "beside it no cat.jpg, …"."""

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Raises PictureMissing."""
        raise PictureMissing(f"{self.place} has {self.wanted}; add the picture or take it out")


def image_file(root: Path, name: str, place: str, walls: Path | None = None) -> ImageFile:
    """Returns the source of a picture that a corpus's file calls `name`, somewhere under `root`.

    Links may lead anywhere in `walls`, the corpus's folder, which is `root` unless told. Raises
    CorpusMalformed for a name that leads out of `root`, or that no file can have. Whether the file
    is there, and whether it is a link out of the corpus, shows when it is read.
    """
    named = PurePosixPath(name)
    # A corpus from elsewhere must not choose which other files of this machine are read.
    if named.is_absolute() or ".." in named.parts:
        raise CorpusMalformed(
            f"{place} names {name}, outside the image folder; correct the file name"
        )
    if not named.parts or "\0" in name:
        raise CorpusMalformed(f"{place} names the picture {name!r}; put its file name there")
    return ImageFile(root / named, place, walls or root)


def check_size(place: str, size_bytes: int) -> None:
    """Raises PictureTooLarge over MAX_READ_BYTES."""
    if size_bytes > MAX_READ_BYTES:
        raise PictureTooLarge(place=place, got=size_bytes, limit=MAX_READ_BYTES)


def _spelled_on_disk(path: Path) -> Path:
    """Returns the one path that spells this one otherwise; itself, where there is none or several.

    Part by part, for a folder's name may be meant as well.
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
    """Returns a folder's names; the time is there to tell the folder from its successor."""
    names: dict[str, tuple[str, ...]] = {}
    for path in Path(folder).iterdir():
        spelling = _spelling(path.name)
        names[spelling] = (*names.get(spelling, ()), path.name)
    return names


def _spelling(name: str) -> str:
    spelled = Path(unicodedata.normalize("NFC", name))
    return spelled.stem + spelled.suffix.lower()
