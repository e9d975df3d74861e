"""Tests that the small disk fills up and can be emptied."""

from pathlib import Path

import pytest

from tests.support.faults.small_disk import SmallDisk

pytestmark = [
    pytest.mark.xdist_group("faults"),
    pytest.mark.skipif(bool(SmallDisk.why_not()), reason=SmallDisk.why_not() or ""),
]


def test_it_fills_up_and_frees_room(tmp_path: Path) -> None:
    with SmallDisk(tmp_path / "disk", 16 << 20) as disk:
        disk.fill()
        assert disk.free_bytes() == 0
        with pytest.raises(OSError, match="No space left"):
            (disk.path / "file").write_bytes(bytes(10_000))

        disk.empty()
        (disk.path / "file").write_bytes(bytes(10_000))

        disk.fill(left_bytes=1 << 20)
        assert 0 < disk.free_bytes() <= 1 << 20
    assert list((tmp_path / "disk").iterdir()) == []
