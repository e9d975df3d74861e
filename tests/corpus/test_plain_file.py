"""A corpus's own files: opened, or refused by name."""

import os
from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.plain_file import open_plain_file


def test_a_file_is_opened(tmp_path: Path) -> None:
    """For its bytes."""
    (tmp_path / "train.tsv").write_bytes(b"a\r\n")

    with open_plain_file(tmp_path / "train.tsv") as file:
        assert file.read() == b"a\r\n"


@pytest.mark.parametrize("name", ["nothing", "folder", "pipe", "x" * 300])
def test_what_cannot_be_opened_is_refused(tmp_path: Path, name: str) -> None:
    """Nothing, a folder, a pipe that would never end, a name too long."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CorpusFileMissing, match=name):
        open_plain_file(tmp_path / name)
