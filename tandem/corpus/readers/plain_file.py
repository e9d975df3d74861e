"""Opens files and lists folders of a corpus, and rejects unsafe ones."""

import os
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.left_out import FileFault, LeftOut

OF_OTHER_PROGRAMS: Final = (
    # Thumbnails, snapshots and bins of network drives and systems.
    *("@eaDir", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", "$RECYCLE.BIN"),
    *("RECYCLER", "System Volume Information", "__MACOSX", "lost+found"),
    # Previews of catalogues.
    *("*.lrdata", "*.photoslibrary/resources", "*.photoslibrary/scopes"),
    # Sidecars, and what file managers write, such as "._cat.jpg" for "cat.jpg".
    *("._*", ".DS_Store", "Thumbs.db", "desktop.ini", "*.xmp", "*.aae", ".*.crc"),
)
"""Globs of what other programs leave next to a user's files. Most of what they hide has a dot."""
_HUB_SNAPSHOTS: Final = "snapshots"


def open_plain_file(path: Path, root: Path | None = None) -> BufferedReader:
    """Returns the file, open for reading bytes.

    Raises CorpusFileMissing if the file is missing, cannot be opened, is a link out of `root`, or
    is not a plain file: opening a named pipe would block forever.
    """
    try:
        if root is not None and (outside := leads_out(path, root)):
            raise CorpusFileMissing(f"{path} {outside}")
        if path.is_file():
            return path.open("rb")
    except OSError as error:
        raise CorpusFileMissing(f"{path} cannot be opened: {error.strerror}") from error
    raise CorpusFileMissing(f"no file {path}; correct the path")


def leads_out(path: Path, root: Path) -> str:
    """Returns what is wrong with a path that resolves outside `root`; empty if nothing is.

    An untrusted corpus must not choose which other files of this machine are read. The root itself
    may be a link, because the user chose it.
    """
    real, real_root = os.path.realpath(path), _walls(root.absolute())
    if real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep):
        return ""
    return (
        f"is a link out of the corpus, to {real}; put the file itself there, or give a folder "
        "that holds both"
    )


def list_folder(
    folder: Path, root: Path | None = None, left_out: LeftOut | None = None
) -> tuple[list[Path], list[Path]]:
    """Returns the plain files and the folders in a folder, sorted by name, with links followed.

    Skips hidden entries, entries that are neither, names that are not UTF-8, what `left_out`
    excludes, what other programs left and, with a `root`, folders that lead out of it. Counts them
    in `left_out`, but not the files of other programs, which are no pictures. Raises
    CorpusFileMissing if the folder cannot be listed.
    """
    left_out = LeftOut() if left_out is None else left_out
    below = folder.relative_to(root) if root is not None else Path()
    files: list[Path] = []
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda each: each.name)
    except OSError as error:
        raise CorpusFileMissing(
            f"{error.filename} cannot be listed: {error.strerror}; make it readable, or remove it"
        ) from error
    for entry in found:
        path = Path(entry)
        if _is_any_of(OF_OTHER_PROGRAMS, below / entry.name):
            if path.is_dir():
                left_out.pass_over(path, FileFault.OF_OTHER_PROGRAMS)
        elif _is_any_of(left_out.excluded, below / entry.name):
            left_out.pass_over(path, FileFault.EXCLUDED)
        elif (fault := _fault(entry, root)) is not None:
            left_out.pass_over(path, fault)
        elif entry.is_dir():
            folders.append(path)
        else:
            files.append(path)
    return files, folders


def files_below(folder: Path, root: Path, left_out: LeftOut) -> Iterator[Path]:
    """Yields the plain files in a folder and all folders below it, each folder once.

    Skips what `list_folder` skips, and folders below that cannot be listed. Raises
    CorpusFileMissing if `folder` itself cannot be listed.
    """
    files, folders = list_folder(folder, root, left_out)
    yield from files
    seen = {_identity(folder)}
    # Iterative, because folders may be nested thousands deep. Links last, so that a folder is read
    # under its own name where it has one here.
    to_visit, links = _links_apart(folders)
    while to_visit or links:
        child = to_visit.pop() if to_visit else links.pop()
        try:
            identity = _identity(child)
            # A link may lead back up, and the walk would not end.
            if identity in seen:
                left_out.pass_over(child, FileFault.AGAIN)
                continue
            seen.add(identity)
            files, folders = list_folder(child, root, left_out)
        except (CorpusFileMissing, OSError):
            left_out.pass_over(child, FileFault.UNLISTED)
            continue
        yield from files
        deeper, more_links = _links_apart(folders)
        to_visit += deeper
        links += more_links


def _is_any_of(globs: tuple[str, ...], below: Path) -> bool:
    """Returns whether a glob has the name, or with a slash the path from the corpus's folder."""
    names, paths = _patterns(globs)
    return bool(names.fullmatch(_plain(below.name)) or paths.fullmatch(_plain(below.as_posix())))


@lru_cache(maxsize=4)
def _patterns(globs: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    plain = [_plain(glob).strip("/") for glob in globs]
    ways = (
        (translate(each) for each in plain if "/" not in each),
        (translate(each) for each in plain if "/" in each),
    )
    names, paths = (re.compile("|".join(each) or r"(?!)") for each in ways)
    return names, paths


def _plain(name: str) -> str:
    # Disks differ in case and in how they spell accents.
    return unicodedata.normalize("NFC", name).lower()


def _identity(folder: Path) -> tuple[int, int]:
    stat = folder.stat()
    return stat.st_dev, stat.st_ino


def _links_apart(folders: list[Path]) -> tuple[list[Path], list[Path]]:
    """Returns the folders and the links to folders, in reverse order for pop()."""
    backwards = folders[::-1]
    return (
        [each for each in backwards if not each.is_symlink()],
        [each for each in backwards if each.is_symlink()],
    )


def _fault(entry: os.DirEntry[str], root: Path | None) -> FileFault | None:
    if entry.name.startswith("."):
        return FileFault.HIDDEN
    try:
        entry.name.encode()
        is_dir, is_plain = entry.is_dir(), entry.is_file() or entry.is_symlink()
    except UnicodeEncodeError:
        return FileFault.NAME_NOT_UTF8
    except OSError:
        return FileFault.UNLISTED
    if is_dir and root is not None and entry.is_symlink() and leads_out(Path(entry), root):
        return FileFault.LEADS_OUT
    return None if is_dir or is_plain else FileFault.NOT_PLAIN


@lru_cache(maxsize=16)
def _walls(root: Path) -> str:
    """Returns the resolved folder that links may not leave.

    In Hugging Face's cache, a snapshot's files are links into the blobs/ folder next to snapshots/.
    """
    real = Path(os.path.realpath(root))
    if real.parent.name == _HUB_SNAPSHOTS and (real.parent.parent / "blobs").is_dir():
        return str(real.parent.parent)
    return str(real)
