"""The files and folders that a corpus is made of, opened and listed, or refused by name."""

import os
from io import BufferedReader
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusFileMissing

# In the root folder of a disk, and no user's.
_LOST_AND_FOUND: Final = "lost+found"


def open_plain_file(path: Path) -> BufferedReader:
    """Returns the file, open for reading bytes.

    Raises CorpusFileMissing where there is none, where it cannot be opened, and for what is no
    plain file: opening a named pipe would wait for ever.
    """
    try:
        if path.is_file():
            return path.open("rb")
    except OSError as error:
        raise CorpusFileMissing(f"{path} cannot be opened: {error.strerror}") from error
    raise CorpusFileMissing(f"no file {path}; correct the path")


def list_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Returns the plain files and the folders in a folder, links by what they lead to.

    Hidden ones are left out: macOS leaves a "._cat.jpg" beside each "cat.jpg". Raises
    CorpusFileMissing where it cannot be listed.
    """
    files: list[Path] = []
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == _LOST_AND_FOUND:
                    continue
                if entry.is_dir():
                    folders.append(Path(entry))
                elif entry.is_file():
                    files.append(Path(entry))
    except OSError as error:
        raise CorpusFileMissing(
            f"{error.filename} cannot be listed: {error.strerror}; let it be read, or take it away"
        ) from error
    return files, folders
