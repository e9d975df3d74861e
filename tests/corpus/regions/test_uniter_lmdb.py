"""UNITER's database, written as its scripts write it: msgpack-numpy's layout, or .npz."""

import io
import json
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import numpy as np
import pytest

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.regions.uniter_lmdb import UniterLmdb, unpacked_arrays

NAME = "feat_th0.2_max100_min1"
ARRAYS = {
    "norm_bb": np.array([[0, 0, 0.5, 1, 0.5, 1], [0.5, 0, 1, 1, 0.5, 1]], np.float16),
    "features": np.array([[1, 2], [3, 4]], np.float16),
    "conf": np.array([[0.9], [0.1]], np.float16),
}


def packed(array: np.ndarray) -> dict[bytes, Any]:
    """Returns what msgpack-numpy's `encode` makes of an array."""
    return {
        b"nd": True,
        b"type": array.dtype.str,
        b"kind": b"",
        b"shape": array.shape,
        b"data": array.tobytes(),
    }


def as_msgpack(arrays: dict[str, np.ndarray]) -> bytes:
    """Returns a value of the uncompressed variant."""
    return bytes(msgpack.packb({name: packed(each) for name, each in arrays.items()}))


def as_npz(arrays: dict[str, np.ndarray]) -> bytes:
    """Returns a value of the compressed variant."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def write(folder: Path, values: dict[bytes, bytes]) -> Path:
    """Writes a database."""
    with (
        lmdb.open(str(folder), map_size=1 << 20) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in values.items():
            transaction.put(key, value)
    return folder


@pytest.mark.parametrize("variant", ["", "_compressed"])
def test_both_variants_are_read(tmp_path: Path, variant: str) -> None:
    """One confidence is over 0.2, and the folder's name asks for one region at least."""
    value = as_npz(ARRAYS) if variant else as_msgpack(ARRAYS)
    keys = json.dumps(["coco_val2014_000000000042.npz"]).encode()
    values = {b"coco_val2014_000000000042.npz": value, b"__keys__": keys}
    reader = UniterLmdb(write(tmp_path / (NAME + variant), values))
    reader.feature_width = 2

    regions = reader.read("coco_val2014_000000000042")

    assert list(reader.image_ids()) == ["coco_val2014_000000000042"]
    assert regions.features.tolist() == [[1, 2]]
    assert regions.boxes is not None
    assert regions.boxes.tolist() == [[0, 0, 0.5, 1]]
    with pytest.raises(RegionsMissing, match="'43'"):
        reader.read("43")


def test_the_side_file_says_how_many_count(tmp_path: Path) -> None:
    """It wins over the confidences, and gives at least ten to an image of fewer: all are read."""
    (tmp_path / "nbb_th0.2_max100_min1.json").write_text('{"a.npz": 2, "c.npz": 10}')
    values = {f"{name}.npz".encode(): as_msgpack(ARRAYS) for name in "abc"}
    folder = write(tmp_path / NAME, values | {b"__keys__": b'["a.npz", "b.npz", "c.npz"]'})

    reader = UniterLmdb(folder)
    reader.feature_width = 2

    assert [len(reader.read(each)) for each in "abc"] == [2, 1, len(ARRAYS["conf"])]


def test_another_database_and_a_damaged_value_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusMalformed, match="__keys__"):
        UniterLmdb(write(tmp_path / "feat", {b"a": b"b"}))
    with pytest.raises(RegionsUnreadable, match=r"^it is not a whole msgpack"):
        unpacked_arrays("it", as_msgpack(ARRAYS)[:-5])


def test_a_database_cut_short_is_refused(tmp_path: Path) -> None:
    """Reading a page behind its end would end the process, without a message."""
    values = {f"{number}.npz".encode(): bytes(3000) for number in range(20)}
    keys = json.dumps([f"{number}.npz" for number in range(20)]).encode()
    folder = write(tmp_path / NAME, values | {b"__keys__": keys})
    assert len(list(UniterLmdb(folder).image_ids())) == 20

    data = folder / "data.mdb"
    data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])

    with pytest.raises(CorpusMalformed, match=r"data\.mdb has .* bytes.*cut short: copy it again"):
        UniterLmdb(folder)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("feat_numbb11_compressed", 11),
        ("feat_numbb36", 12),
        ("feat_th0.2_max100_min10", 10),
    ],
)
def test_a_number_of_regions_in_the_name_stands_for_the_confidences(
    tmp_path: Path, name: str, count: int
) -> None:
    """All twelve confidences are under the threshold of the last name, which takes its fewest."""
    arrays = {
        "features": np.ones((12, 2), np.float16),
        "norm_bb": np.full((12, 6), 0.5, np.float16),
        "conf": np.full((12, 1), 0.1, np.float16),
    }
    values = {b"a.npz": as_npz(arrays), b"__keys__": b'["a.npz"]'}

    reader = UniterLmdb(write(tmp_path / name, values))
    reader.feature_width = 2
    regions = reader.read("a")

    assert len(regions) == count
