"""Lists the files in a tar archive by offset and size, and rejects malicious archives.

Nothing is ever unpacked: a file's bytes are read in place.
"""

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Final

from tandem.corpus.errors import ArchiveUnsafe, CorpusError, CorpusMalformed
from tandem.corpus.readers.plain_file import open_plain_file

# Limit on what tarfile reads between two files. It would read a long name or extended fields of any
# size that the archive declares; names have 4 KiB at most.
MAX_HEADER_BYTES: Final = 16 * 2**10

# tarfile raises these for broken headers, in addition to its own errors.
_BROKEN = (tarfile.TarError, ValueError, IndexError, OverflowError, EOFError, OSError)


@dataclass(frozen=True, slots=True)
class TarMember:
    """Locates a file in an archive."""

    name: str
    offset_bytes: int
    """Offset of its first byte in the archive file."""
    size_bytes: int
    part: int = 0
    """Number of its archive, if the file contains several."""


def tar_members(path: Path, root: Path | None = None) -> Iterator[TarMember]:
    """Yields the files of an archive in order, and those of further archives appended to it.

    `cat a.tar b.tar` makes such a file, of which `tar` reads only the first archive. A name that is
    not UTF-8 contains surrogates. Raises CorpusFileMissing if there is no archive, CorpusMalformed
    for one that is damaged, cut short or compressed, and ArchiveUnsafe for a member that is not a
    plain file or folder, whose name leads out of the archive, or whose header exceeds
    MAX_HEADER_BYTES.
    """
    with open_plain_file(path, root) as file:
        start_bytes = 0
        for part in count():
            end_bytes = start_bytes
            for info in _infos(file, path, start_bytes):
                _check(info, path)
                if info.offset < end_bytes:
                    raise ArchiveUnsafe(
                        place=f"{path}: {info.name!a}", why="lies over the one before"
                    )
                end_bytes = info.offset_data
                if info.isfile():
                    end_bytes += -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
                    yield TarMember(info.name, info.offset_data, info.size, part)
            # tarfile silently takes a damaged header for the end.
            file.seek(end_bytes)
            if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise CorpusMalformed(
                    f"{path} is damaged or cut short at byte {end_bytes:,}; fetch it again"
                )
            following = _next_archive(file)
            if following is None:
                return
            start_bytes = following


def _next_archive(file: BufferedReader) -> int | None:
    """Returns where the archive's trailing zeros end; None if nothing follows them."""
    position = file.tell()
    while block := file.read(tarfile.BLOCKSIZE):
        if block.count(0) < len(block):
            return position
        position += len(block)
    return None


def _infos(file: BufferedReader, path: Path, start_bytes: int) -> Iterator[tarfile.TarInfo]:
    file.seek(start_bytes)
    headers = _Headers(file, path)
    try:
        with tarfile.open(  # type: ignore[call-overload]
            mode="r:", fileobj=headers, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for info in archive:
                yield info
                headers.start_anew()
    except CorpusError:
        raise
    except _BROKEN as error:
        raise CorpusMalformed(
            f"{path} is not a whole tar archive ({error}); fetch it again, or unpack it if it is "
            "compressed: pictures are read from their place in it"
        ) from error


class _Headers:
    """Gives tarfile the archive, but no more than one header's bytes at a time."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file = file
        self._path = path
        self._left_bytes = MAX_HEADER_BYTES

    def start_anew(self) -> None:
        """Allows the next header."""
        self._left_bytes = MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        """Returns `size` bytes; raises ArchiveUnsafe beyond the header's limit."""
        if not 0 <= size <= self._left_bytes:
            raise ArchiveUnsafe(
                place=f"{self._path} at byte {self._file.tell():,}",
                why=f"has a header of more than {MAX_HEADER_BYTES:,} bytes",
            )
        self._left_bytes -= size
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        """Moves to the offset."""
        return self._file.seek(offset)

    def tell(self) -> int:
        """Returns the offset."""
        return self._file.tell()


def _check(info: tarfile.TarInfo, path: Path) -> None:
    place = f"{path}: {info.name!a}"
    if info.islnk() or info.issym():
        raise ArchiveUnsafe(place=place, why=f"is a link to {info.linkname!a}")
    if info.issparse():
        raise ArchiveUnsafe(place=place, why="is a file with holes")
    if not (info.isfile() or info.isdir()):
        raise ArchiveUnsafe(place=place, why="is a device, a pipe or something unknown")
    named = PurePosixPath(info.name)
    if named.is_absolute() or ".." in named.parts:
        raise ArchiveUnsafe(place=place, why="has a name that leads out of the archive")
    if info.size < 0:
        raise ArchiveUnsafe(place=place, why=f"claims {info.size:,} bytes")
