"""Pictures in files: read when asked for, and refused by what names them."""

import os
from pathlib import Path

import pytest

from tandem.corpus.errors import (
    CorpusMalformed,
    PictureFileMissing,
    PictureTooLarge,
)
from tandem.corpus.readers.image_sources import MAX_READ_BYTES, ImageFile, image_file

PLACE = "list.tsv: line 3"


def test_a_picture_is_read_from_under_its_folder(tmp_path: Path) -> None:
    """Its name may have folders in it; str() is where it lies."""
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.jpg").write_bytes(b"pixels")

    source = image_file(tmp_path, "cats/a.jpg", PLACE)

    assert source.read() == b"pixels"
    assert str(source) == f"{tmp_path}/cats/a.jpg"


def test_a_state_changes_with_the_file_and_needs_no_read(tmp_path: Path) -> None:
    """Of a name in other case too; there is none of a file that is missing."""
    (tmp_path / "a.JPG").write_bytes(b"pixels")
    source = image_file(tmp_path, "a.jpg", PLACE)
    before = source.stat()

    os.utime(tmp_path / "a.JPG", ns=(1, 1))
    assert before is not None
    after = source.stat()
    assert after is not None
    assert before != after
    assert after[:2] == (6, 1)
    (tmp_path / "a.JPG").unlink()
    assert source.stat() is None


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    for name in ("/etc/a.jpg", "cats/../../a.jpg", "", "a\0.jpg"):
        with pytest.raises(CorpusMalformed, match=r"list\.tsv: line 3 names"):
            image_file(tmp_path, name, PLACE)


def test_a_path_that_is_not_a_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "link.jpg").symlink_to(tmp_path / "nowhere.jpg")
    os.mkfifo(tmp_path / "pipe.jpg")

    for name in ("nothing.jpg", "folder.jpg", "link.jpg", "x" * 300, "pipe.jpg"):
        with pytest.raises(PictureFileMissing, match=rf"list\.tsv: line 3 names .*{name}"):
            ImageFile(tmp_path / name, PLACE).read()


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    """One byte decides; the file is a hole, so the test writes nothing."""
    path = tmp_path / "large.jpg"
    for size in (MAX_READ_BYTES, MAX_READ_BYTES + 1):
        with path.open("wb") as file:
            file.truncate(size)
        if size == MAX_READ_BYTES:
            assert len(ImageFile(path, PLACE).read()) == 67_108_864

    with pytest.raises(PictureTooLarge, match=r"67,108,865 bytes, the limit is 67,108,864"):
        ImageFile(path, PLACE).read()
