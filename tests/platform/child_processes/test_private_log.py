"""tandem.platform.child_processes.private_log: a log has its owner, and a size."""

from __future__ import annotations

import stat
from pathlib import Path

from tandem.platform.child_processes.private_log import bound_log, private_log


def test_a_log_that_is_too_large_begins_again(tmp_path: Path) -> None:
    path = tmp_path / "encoder.log"
    with private_log(path) as log:
        for word in (b"first", b"second", b"third"):
            log.write(word)
            log.flush()
            bound_log(path, max_bytes=4)
        log.write(b"last")

    older_path = tmp_path / "encoder.log.1"
    assert (path.read_bytes(), older_path.read_bytes()) == (b"last", b"third")
    assert stat.S_IMODE(older_path.stat().st_mode) == 0o600


def test_a_log_within_its_size_stays(tmp_path: Path) -> None:
    path = tmp_path / "encoder.log"
    path.write_bytes(b"four")

    bound_log(path, max_bytes=4)
    bound_log(tmp_path / "removed.log", max_bytes=4)
    assert [each.name for each in tmp_path.iterdir()] == ["encoder.log"]


def test_without_space_for_a_copy_the_lines_go(tmp_path: Path) -> None:
    path = tmp_path / "encoder.log"
    path.write_bytes(b"first")
    (tmp_path / "encoder.log.1").mkdir()

    bound_log(path, max_bytes=4)

    assert path.read_bytes() == b""
