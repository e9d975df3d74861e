"""Parquet files: what was written is what is read, a row group at a time."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.corpus.errors import (
    CorpusError,
    CorpusFileMissing,
    CorpusMalformed,
    PictureFileMissing,
    PictureMissing,
    PictureOutside,
    SplitUnknown,
)
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.parquet import ParquetTable
from tandem.corpus.readers.table import read_table
from tandem.corpus.records import Record

HUGGING_FACE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(path: Path, rows_a_group: int = 2, **columns: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=rows_a_group)
    return path


def pets(path: Path, **more: Any) -> Path:
    """Writes three rows in two groups."""
    columns = {
        "image": [b"pixels of 0", b"pixels of 1", b"pixels of 2"],
        "caption": ["a", "b", "c"],
    }
    return write(path, **columns | more)  # type: ignore[arg-type]


def read(path: Path, split: str = "train") -> list[Record]:
    return list(read_table(path, split))


def test_a_row_is_a_record(tmp_path: Path) -> None:
    path = pets(tmp_path / "train.parquet", lang=["de", None, "fr"], width=[1, 2, 3])
    numbered = pets(tmp_path / "val.parquet", id=[7, 8, 9])

    first, second, third = read(path)

    assert (first.record_id, first.family, first.split) == ("train/0", "train/0", "train")
    assert [
        (c.caption_id, c.text, c.language) for each in (first, second, third) for c in each.captions
    ] == [
        ("train/0#de-0", "a", "de"),
        ("train/1#en-0", "b", "en"),
        ("train/2#fr-0", "c", "fr"),
    ]
    assert third.image.read() == b"pixels of 2"
    assert str(third.image) == f"{path}: row 2"
    assert [each.record_id for each in read(numbered, "val")] == ["7", "8", "9"]


def test_the_column_gives_the_split(tmp_path: Path) -> None:
    pets(tmp_path / "a.parquet", split=["train", "test", "train"])
    pets(tmp_path / "train-00000-of-00001.parquet")
    pets(tmp_path / "val" / "0.parquet")

    assert [each.record_id for each in read(tmp_path)] == [
        "a/0",
        "a/2",
        *(f"train-00000-of-00001/{row}" for row in range(3)),
    ]
    (tested,) = read(tmp_path, "test")
    assert (tested.record_id, tested.split, tested.image.read()) == ("a/1", "test", b"pixels of 1")
    assert len(read(tmp_path, "val")) == 3
    with pytest.raises(SplitUnknown, match=r"split 'extra'; its splits are: test, train, val;"):
        read_table(tmp_path, "extra")


def test_one_of_several_configurations_is_chosen_by_its_folder(tmp_path: Path) -> None:
    for name in ("de", "fr"):
        (tmp_path / name).mkdir()
        pets(tmp_path / name / "train" / "0000.parquet", caption=[name] * 3)

    with pytest.raises(CorpusMalformed, match="several configurations: de, fr; give the folder"):
        read_table(tmp_path, "train")
    records = read(tmp_path / "fr")
    assert [each.captions[0].text for each in records] == ["fr", "fr", "fr"]


def test_an_empty_cell_shows_when_the_picture_is_read(tmp_path: Path) -> None:
    bare = pets(tmp_path / "a.parquet", image=[None, b"1", b"2"], caption=[None, "b", "c"])
    packed = pa.array(
        [{"bytes": None, "path": None}, {"bytes": b"1", "path": None}, None], HUGGING_FACE
    )
    struct = pets(tmp_path / "b.parquet", image=packed)

    for path, empty in ((bare, [0]), (struct, [0, 2])):
        records = read(path)
        assert records[1].image.read() == b"1"
        for row in empty:
            with pytest.raises(
                PictureMissing, match=rf"\.parquet: row {row} has neither a picture"
            ):
                records[row].image.read()
    assert read(bare)[0].captions == ()
    assert (read(struct)[2].text, read(struct)[2].captions) == ("c", ())


def test_a_path_without_bytes_is_a_file_next_to_the_corpus(tmp_path: Path) -> None:
    """Hugging Face's datasets may name pictures instead of holding them; not just any."""
    root = tmp_path / "root"
    names = ("cat.jpg", "dog.jpg", "/etc/passwd", "link")
    named = pa.array([{"bytes": None, "path": path} for path in names], HUGGING_FACE)
    write(root / "train.parquet", image=named, caption=["x"] * 4)
    (root / "cat.jpg").write_bytes(b"pixels of cat")
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path / "secret")

    there, missing, outside, linked = read(root)

    assert there.image.read() == b"pixels of cat"
    with pytest.raises(PictureFileMissing, match=r"row 1 names .*dog\.jpg, which is not there"):
        missing.image.read()
    with pytest.raises(CorpusMalformed, match=r"row 2 names /etc/passwd, outside"):
        outside.image.read()
    with pytest.raises(PictureOutside, match=r"row 3 names .*link, which is a link out of the"):
        linked.image.read()


def test_a_changed_file_is_reread_or_missing(tmp_path: Path) -> None:
    """What stays in memory of it is not given for its successor's."""
    path = pets(tmp_path / "train.parquet")
    first, _, last = read(path)
    assert first.image.read() == b"pixels of 0"

    write(path, image=[b"another"], caption=["x"])
    assert first.image.read() == b"another"
    with pytest.raises(PictureFileMissing, match=r"train\.parquet: row 2 cannot be read"):
        last.image.read()
    path.unlink()
    with pytest.raises(PictureFileMissing, match=r"train\.parquet: row 0 cannot be read"):
        first.image.read()


def test_a_row_group_that_would_fill_the_memory_is_refused_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "train.parquet", image=[bytes(10**6)], caption=["x"])
    assert path.stat().st_size < 10**5

    assert len(read(path)) == 1
    monkeypatch.setattr(ParquetTable, "max_group_bytes", 999)
    with pytest.raises(CorpusMalformed, match=r"row group 0 has 1,000,\d+ bytes, the limit is 999"):
        read(path)


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [
        (HUGGING_FACE, {}),
        (pa.binary(), {"use_dictionary": False, "column_encoding": {"image": "DELTA_BYTE_ARRAY"}}),
    ],
)
def test_a_row_group_that_turns_out_too_large_is_refused_on_the_way(
    tmp_path: Path, kind: pa.DataType, encoded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 rows of one picture lie in a file once: what is read of them stays under the limit."""
    picture = random.Random(1).randbytes(900_000)
    cells = [{"bytes": picture, "path": None} if kind == HUGGING_FACE else picture] * 60
    path = tmp_path / "train.parquet"
    pq.write_table(
        pa.table({"image": pa.array(cells, kind), "caption": ["x"] * 60}), path, **encoded
    )
    assert path.stat().st_size < 10**6

    monkeypatch.setattr(ParquetTable, "max_group_bytes", 2 * 10**6)
    (refused, *_) = read(path)
    # A pool that no other test uses counts what this one takes.
    before, own = pa.default_memory_pool(), pa.system_memory_pool()
    assert before.backend_name != own.backend_name
    pa.set_memory_pool(own)
    try:
        with pytest.raises(
            CorpusMalformed, match=r"row group 0 has over 2,000,000 bytes, the limit"
        ):
            refused.image.read()
    finally:
        pa.set_memory_pool(before)

    assert 0 < own.max_memory() < 6 * 10**6
    monkeypatch.setattr(ParquetTable, "max_group_bytes", 6 * 10**7)
    assert next(read_table(path, "train")).image.read() == picture


@pytest.mark.parametrize(
    ("more", "row", "says"),
    [
        ({"caption": [["a"], ["b", None], ["c"]]}, 1, "row 1 has a caption that is not text"),
        ({"language": [1, 2, 3]}, 2, "row 2 has a language that is not text"),
    ],
)
def test_captions_that_are_not_text_are_reported_with_their_record(
    tmp_path: Path, more: dict[str, Any], row: int, says: str
) -> None:
    path = pets(tmp_path / "train.parquet", **more)

    records = read(path)

    assert len(records) == 3
    assert records[row].captions == ()
    assert records[row].captions_fault == f"{path}: {says}; correct it"


def test_rows_are_numbered_over_batches_and_groups(tmp_path: Path) -> None:
    """300 rows in groups of 130, which are read 64 rows at a time; pictures in any order."""
    images = [b"%d" % number for number in range(300)]
    splits = ["train", "val"] * 150
    path = write(tmp_path / "a.parquet", 130, image=images, caption=["x"] * 300, split=splits)

    records = read(path, "val")

    assert [each.record_id for each in records] == [f"a/{row}" for row in range(1, 300, 2)]
    assert [each.image.read() for each in records[::-1]] == images[1::2][::-1]


def test_a_file_that_is_not_parquet_is_refused_at_the_call(tmp_path: Path) -> None:
    path = pets(tmp_path / "train.parquet")
    for content in (b"", b"no parquet at all", path.read_bytes()[:-20]):
        path.write_bytes(content)
        with pytest.raises(CorpusMalformed, match=r"train\.parquet is not a whole parquet file"):
            read_table(path, "train")

    with pytest.raises(CorpusFileMissing, match=r"no \.parquet or .* file at .*nowhere"):
        read_table(tmp_path / "nowhere", "train")


def test_damage_raises_only_named_errors(tmp_path: Path) -> None:
    """Files with bytes changed: read, or refused by name."""
    dice = random.Random(5)
    path = pets(tmp_path / "train.parquet")
    whole = path.read_bytes()
    outcomes = {True: 0, False: 0}
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            for record in read(path):
                record.image.read()
            outcomes[True] += 1
        except CorpusError:
            outcomes[False] += 1

    assert min(outcomes.values()) > 20, outcomes


def test_without_pyarrow_the_extra_is_named() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import tandem.corpus.readers.parquet"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )

    assert "ExtraMissing: parquet files are read with pyarrow" in ran.stderr
    assert 'pip install "tandem-search[parquet]"' in ran.stderr


def test_ids_are_of_any_type_and_each_rows_own(tmp_path: Path) -> None:
    """pandas makes reals of whole numbers where a cell is missing."""
    path = pets(tmp_path / "train.parquet", id=[1.0, 2.0, None])
    left_out = LeftOut(goes_on=True)

    records = list(read_table(path, "train", left_out=left_out))

    assert [each.record_id for each in records] == ["1", "2"]
    assert "row 2 has no id" in left_out.first[0]
    records = read(pets(path, id=[b"a", "ä".encode(), b"c"]))
    assert [each.record_id for each in records] == ["a", "ä", "c"]
    assert [each.record_id for each in read(pets(path, id=["x", "y", "x"]))] == ["y", "x"]


def test_numbered_columns_are_captions_of_one_picture(tmp_path: Path) -> None:
    """They keep the order of their numbers; another column is an attribute."""
    path = write(
        tmp_path / "train.parquet",
        image=[b"0", b"1"],
        caption_10=["c", "z"],
        caption_2=["b", None],
        caption_1=["a", "y"],
        alt_text=["?", "?"],
    )

    first, second = read(path)

    assert [each.text for each in first.captions] == ["a", "b", "c"]
    assert [each.text for each in second.captions] == ["y", "z"]
    assert first.attributes == {"alt_text": "?"}


def test_a_damaged_file_does_not_end_the_corpus_if_faults_are_skipped(tmp_path: Path) -> None:
    """It is counted, and the others are read."""
    pets(tmp_path / "train-1.parquet")
    (tmp_path / "train-0.parquet").write_bytes(b"no parquet")
    left_out = LeftOut(goes_on=True)

    assert len(list(read_table(tmp_path, "train", left_out=left_out))) == 3
    assert left_out.counts == {FileFault.DAMAGED: 1}
    with pytest.raises(CorpusMalformed, match=r"train-0\.parquet is not a whole parquet file"):
        read_table(tmp_path, "train")


def test_a_folder_may_say_the_language(tmp_path: Path) -> None:
    pets(tmp_path / "Language=de" / "train.parquet")
    pets(tmp_path / "language=fr" / "train.parquet", language=["cs", None, None])

    said = [caption.caption_id for record in read(tmp_path) for caption in record.captions]

    assert [each.partition("#")[2] for each in said] == [*["de-0"] * 3, "cs-0", "fr-0", "fr-0"]


def test_a_cell_that_python_cannot_hold_is_left_out_alone(tmp_path: Path) -> None:
    """Be it a day in the year 36812, or a text that is not UTF-8."""
    texts = pa.Array.from_buffers(pa.binary(), 3, pa.array([b"a", b"\xff", b"c"]).buffers())
    table = pa.table(
        {
            "caption": texts.cast(pa.string(), safe=False),
            "day": pa.array([0, 2**40, 1], pa.timestamp("s")),
            "time": pa.array([1, 3_600_000_000_001, None], pa.time64("ns")),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    left_out = LeftOut(goes_on=True)

    first, second, third = read_table(tmp_path / "a.parquet", "test", left_out=left_out)

    assert (first.text, second.text, third.text) == ("a", None, "c")
    assert [each.attributes.get("time") for each in (first, second)] == ["00:00:00", "01:00:00"]
    assert third.attributes == {"day": "1970-01-01T00:00:01"}
    assert sorted(left_out.column_counts.values()) == [1, 1]


def test_two_columns_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    cells = [pa.array(["x"])] * 3
    pq.write_table(pa.Table.from_arrays(cells, ["text", "a", "a"]), tmp_path / "a.parquet")

    with pytest.raises(CorpusMalformed, match="has two columns of one name among"):
        read(tmp_path / "a.parquet")
