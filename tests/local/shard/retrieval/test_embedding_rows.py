"""Tests that rows keep their numbers and values over blocks of any length, in memory or a file."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.local.shard.retrieval import embedding_rows
from tandem.local.shard.retrieval.embedding_rows import EmbeddingRows
from tandem.local.shard.retrieval.row_file import RowFile

# The rows to append, or None to save.
steps = st.lists(st.none() | st.integers(1, 9), max_size=12)


def test_few_and_many_rows_are_gathered_equally_over_blocks() -> None:
    """The first block is as long as the rows that were read from a file."""
    embeddings_ND = np.arange(30, dtype=np.float32).reshape(15, 2)
    rows = EmbeddingRows(2, embeddings_ND[:5], b"read-0\0read-1\0read-2\0read-3\0read-4\0")
    rows.append([f"new-{row}" for row in range(10)], embeddings_ND[5:])
    few, many = np.array([14, 0, 4, 5, 4]), np.random.default_rng(0).permutation(15)

    assert np.array_equal(rows.gather(few), embeddings_ND[few])
    assert np.array_equal(rows.gather(many), embeddings_ND[many])


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding_rows, "BLOCK_ROW_COUNT", 4)


@given(steps)
def test_saved_rows_are_as_before(
    tmp_path_factory: pytest.TempPathFactory, each: list[int | None]
) -> None:
    """Whatever was appended between two saves, and for who froze them before."""
    rows = EmbeddingRows(2, file=RowFile(tmp_path_factory.mktemp("rows"), 2))
    expected_ND = np.arange(240, dtype=np.float32).reshape(120, 2)
    for count in each:
        frozen = rows.frozen()
        if count is None:
            rows.save()
            assert rows.unsaved_count == 0
        else:
            start = rows.row_count
            ids = [str(row) for row in range(start, start + count)]
            rows.append(ids, expected_ND[start : start + count])
        for seen in (frozen, rows):
            order = np.random.default_rng(0).permutation(seen.row_count)
            assert np.array_equal(seen.gather(order), expected_ND[order])
            found = [block for _, block in seen.blocks()]
            assert np.array_equal(
                np.concatenate([expected_ND[:0], *found]), expected_ND[: seen.row_count]
            )


@pytest.mark.parametrize("fault", ["full", "flipped"])
def test_rows_that_a_disk_does_not_keep_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """They are mapped once the disk returns them as they were written."""
    rows = EmbeddingRows(2, file=RowFile(tmp_path, 2))
    expected_ND = np.arange(20, dtype=np.float32).reshape(10, 2)
    rows.append([str(row) for row in range(6)], expected_ND[:6])
    rows.save()
    rows.append([str(row) for row in range(6, 10)], expected_ND[6:])
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if fault == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        os.pwrite(descriptor, b"\1", 70)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space" if fault == "full" else "not read back"):
        rows.save()

    assert rows.unsaved_count == 4
    assert np.array_equal(rows.gather(np.arange(10)), expected_ND)
    monkeypatch.setattr(os, "fsync", sync)
    rows.save()
    assert np.array_equal(rows.gather(np.arange(10)), expected_ND)
    assert [piece.size_bytes for piece in rows.file.pieces] == [48, 32]


def test_a_file_goes_with_its_rows(tmp_path: Path) -> None:
    """What was gathered or linked from it stays."""
    rows = EmbeddingRows(2, file=RowFile(tmp_path, 2))
    rows.append(["a"], np.ones((1, 2), np.float32))
    rows.save()
    [(_, mapped_ND)] = rows.blocks()
    assert len(list(tmp_path.iterdir())) == 1

    del rows

    assert list(tmp_path.iterdir()) == []
    assert mapped_ND.tolist() == [[1, 1]]
