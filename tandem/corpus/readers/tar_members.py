"""The files in a tar archive by where their bytes lie; wary of archives made to do harm.

Nothing is ever unpacked: a file's bytes are read from the archive by offset and size.
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

# What tarfile may read to come from one file to the next. It takes the size of a long name or of
# extended fields from the archive and would read as much as that says; names have 4 KiB at most.
MAX_HEADER_BYTES: Final = 16 * 2**10

# What broken headers make tarfile raise, apart from its own.
_BROKEN = (tarfile.TarError, ValueError, IndexError, OverflowError, EOFError, OSError)


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in an archive."""

    name: str
    offset_bytes: int
    """Of its first byte, from the archive's."""
    size_bytes: int
    part: int = 0
    """Of archives that lie behind one another in a file, which."""


def tar_members(path: Path, root: Path | None = None) -> Iterator[TarMember]:
    """Yields the files of an archive in their order, and of those that lie behind its end.

    `cat a.tar b.tar` makes such a file, and `tar` alone would read the first. A name that is not
    UTF-8 has surrogates in it. Raises CorpusFileMissing where there is no archive, CorpusMalformed
    for one that is damaged, cut short or compressed, and ArchiveUnsafe for a file that is no plain
    file or folder, whose name leads out of the archive, or whose header is over MAX_HEADER_BYTES.
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
            # tarfile takes a damaged header for the end, and says nothing.
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
    """Returns where the zeros end that end an archive, or None where nothing is behind them."""
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
            f"{path} is no whole tar archive ({error}); fetch it again, or unpack it if it is "
            "compressed: pictures are read from their place in it"
        ) from error


class _Headers:
    """An archive as tarfile sees it: a file of which it may read a header's worth at a time."""

    def __init__(self, file: BufferedReader, path: Path) -> None:
        self._file = file
        self._path = path
        self._left_bytes = MAX_HEADER_BYTES

    def start_anew(self) -> None:
        """Allows another header."""
        self._left_bytes = MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes; raises ArchiveUnsafe if they are more than are left."""
        if not 0 <= size <= self._left_bytes:
            raise ArchiveUnsafe(
                place=f"{self._path} at byte {self._file.tell():,}",
                why=f"has a header of more than {MAX_HEADER_BYTES:,} bytes",
            )
        self._left_bytes -= size
        return self._file.read(size)

    def seek(self, offset: int) -> int:
        """As of any file."""
        return self._file.seek(offset)

    def tell(self) -> int:
        """As of any file."""
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
