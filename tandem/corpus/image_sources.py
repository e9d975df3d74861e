"""Where the bytes of a corpus's pictures lie, for readers of files that name pictures."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tandem.corpus.errors import (
    CorpusMalformed,
    PictureFileMissing,
    PictureMissing,
    PictureTooLarge,
)

# Eight times what the decoder takes: it is here so that no file, whatever it is, fills the memory
# before the decoder can refuse it.
MAX_READ_BYTES: Final = 64 * 2**20
PICTURE_SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".webp")


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image source that is a file."""

    path: Path
    place: str
    """What names it, for messages: "list.tsv: line 3"."""

    def __str__(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Returns the file's bytes.

        Raises PictureFileMissing where there is no such file, PictureTooLarge over MAX_READ_BYTES.
        """
        try:
            # Asked first, because opening a named pipe would wait for ever.
            if not self.path.is_file():
                raise PictureFileMissing(
                    f"{self.place} names {self.path}, which is not there; fetch the pictures, or "
                    "give the folder that its name starts from"
                )
            check_size(str(self), self.path.stat().st_size)
            return self.path.read_bytes()
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


def image_file(root: Path, name: str, place: str) -> ImageFile:
    """Returns the source of a picture that a corpus's file calls `name`, somewhere under `root`.

    Raises CorpusMalformed for a name that leads out of `root`, or that no file can have. Whether
    the file is there shows when it is read.
    """
    named = PurePosixPath(name)
    # A corpus from elsewhere must not choose which other files of this machine are read.
    if named.is_absolute() or ".." in named.parts:
        raise CorpusMalformed(
            f"{place} names {name}, outside the image folder; correct the file name"
        )
    if not named.parts or "\0" in name:
        raise CorpusMalformed(f"{place} names the picture {name!r}; put its file name there")
    return ImageFile(root / named, place)


def check_size(place: str, size_bytes: int) -> None:
    """Raises PictureTooLarge over MAX_READ_BYTES."""
    if size_bytes > MAX_READ_BYTES:
        raise PictureTooLarge(place=place, got=size_bytes, limit=MAX_READ_BYTES)
