"""Files that are there whole or as they were."""

from pathlib import Path

import pytest

from tandem.platform.files.whole_file import write_text_whole, write_whole


def test_a_file_replaces_the_previous_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    for text in ("first", "second, longer"):
        write_text_whole(path, text)
        assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["notes.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_write_that_breaks_off_leaves_the_old(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    write_text_whole(path, "whole")

    def half(fresh: Path) -> None:
        fresh.write_text("ha")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(path, half)

    assert path.read_text() == "whole"
    assert [each.name for each in tmp_path.iterdir()] == ["notes.json"]
