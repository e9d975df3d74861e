"""A corpus's own files: opened, or refused by name."""

import inspect
import os
import sys
from pathlib import Path

import pytest

from tandem.corpus.errors import CorpusFileMissing
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.plain_file import files_below, list_folder, open_plain_file


@pytest.mark.parametrize("name", ["folder", "pipe"])
def test_files_that_cannot_be_opened_are_refused(tmp_path: Path, name: str) -> None:
    """A folder, and a pipe that would never end."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CorpusFileMissing, match=name):
        open_plain_file(tmp_path / name)


def test_folders_may_be_nested_deeply(tmp_path: Path) -> None:
    deep = str(tmp_path)
    made = [deep := f"{deep}/d" for _ in range(300)]
    for folder in made:
        os.mkdir(folder)  # noqa: PTH102
    Path(deep, "a.jpg").touch()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        found = list(map(str, files_below(tmp_path, tmp_path, LeftOut())))
    finally:
        sys.setrecursionlimit(limit)
        Path(deep, "a.jpg").unlink()
        for folder in reversed(made):
            os.rmdir(folder)  # noqa: PTH106

    assert found == [f"{deep}/a.jpg"]


def test_a_folder_is_read_once_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "a.jpg").touch()
    for name in ("a", "z/again", "z/up"):
        (tmp_path / name).symlink_to(tmp_path / "z" if name != "z/up" else tmp_path)
    left_out = LeftOut()

    assert list(files_below(tmp_path, tmp_path, left_out)) == [tmp_path / "z" / "a.jpg"]
    assert left_out.file_counts == {FileFault.AGAIN: 3}


def test_entries_that_are_not_plain_files_are_ignored(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    for name in (".hidden", "._a.jpg", ".DS_Store", ".a.parquet.crc", "a.jpg"):
        (tmp_path / name).touch()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.jpg")).touch()
    left_out = LeftOut()

    files, folders = list_folder(tmp_path, tmp_path, left_out)

    assert (files, folders) == ([tmp_path / "a.jpg"], [])
    assert left_out.file_counts == {
        FileFault.NOT_PLAIN: 1,
        FileFault.HIDDEN: 1,
        FileFault.UNLISTED: 1,
        FileFault.NAME_NOT_UTF8: 1,
        FileFault.OF_OTHER_PROGRAMS: 1,
    }
