"""Kept image tokens: appended, mapped, and continued after a kill."""

from pathlib import Path

import numpy as np
import pytest

from tandem.lab.training.sources.kept_tokens import KeptTokens, view_digest

MADE_BY = {"image_source": "efficientnet_lite0", "weights_sha256": "0" * 64}
SHAPE = (3, 4)


def tokens(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]]:
    return np.stack([np.full(SHAPE, value, np.float16) for value in values])


def digests(*names: str) -> list[bytes]:
    return [view_digest(name.encode(), 0) for name in names]


def kept_of(folder: Path) -> KeptTokens:
    return KeptTokens(folder, MADE_BY, SHAPE)


def test_rows_are_found_again_by_another_run(tmp_path: Path) -> None:
    first = kept_of(tmp_path)
    with first.writing():
        first.add(digests("a", "b"), tokens(1, 2))
        first.add(digests("c"), tokens(3))

    kept = kept_of(tmp_path)

    assert all(digest in kept for digest in digests("a", "b", "c"))
    assert digests("d")[0] not in kept
    rows = kept.mapped()[kept.rows(digests("c", "a"))]
    assert rows[:, 0, 0].tolist() == [3.0, 1.0]
    assert isinstance(kept.mapped(), np.memmap)


@pytest.mark.parametrize(("name", "cut"), [("tokens.f16", 1), ("digests.bin", 31)])
def test_files_cut_by_a_kill_are_written_again(tmp_path: Path, name: str, cut: int) -> None:
    """A row whose tokens or digest are incomplete is none; the next run appends after the rest."""
    first = kept_of(tmp_path)
    with first.writing():
        first.add(digests("a", "b"), tokens(1, 2))
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-cut])

    kept = kept_of(tmp_path)
    assert [digest in kept for digest in digests("a", "b")] == [True, False]
    with kept.writing():
        kept.add(digests("b", "c"), tokens(5, 6))

    again = kept_of(tmp_path)
    assert again.mapped()[again.rows(digests("a", "b", "c"))][:, 0, 0].tolist() == [1.0, 5.0, 6.0]


def test_tokens_of_another_network_are_refused(tmp_path: Path) -> None:
    kept_of(tmp_path)
    with pytest.raises(ValueError, match=r"keeps image tokens of .*lite0.* --features"):
        KeptTokens(tmp_path, MADE_BY | {"weights_sha256": "1" * 64}, SHAPE)
