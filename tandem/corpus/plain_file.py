"""The files that a corpus is made of, opened or refused by name."""

from io import BufferedReader
from pathlib import Path

from tandem.corpus.errors import CorpusFileMissing


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
