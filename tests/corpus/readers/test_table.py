"""Tables of every kind: each value is an attribute of its type, or is named as left out."""

import base64
import codecs
import gzip
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tandem.corpus.errors import (
    CorpusMalformed,
    NothingRead,
    PictureFileMissing,
    PictureIsUrl,
    PictureMissing,
)
from tandem.corpus.left_out import FileFault, LeftOut, ReaderFault
from tandem.corpus.readers.table import read_table
from tandem.corpus.records import Record

JPG = b"\xff\xd8\xff pixels"


def records(path: Path, content: bytes | str, left_out: LeftOut, **columns: str) -> list[Record]:
    """Writes the file, with a picture next to it, and reads it."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (path.parent / "img").mkdir(exist_ok=True)
    (path.parent / "img" / "a.jpg").write_bytes(JPG)
    return list(read_table(path, "test", left_out=left_out, columns=columns))


def by_id(found: list[Record]) -> dict[str, Any]:
    return {each.record_id: dict(each.attributes) for each in found}


def test_a_row_is_a_picture_or_a_text_with_its_attributes(tmp_path: Path) -> None:
    """Of a table without splits, whatever split is meant; pictures are files, or in the row."""
    encoded = base64.urlsafe_b64encode(JPG * 10).decode()
    rows: list[dict[str, Any]] = [
        {"id": 1, "picture": "img/a.JPG", "text": ["red", "a cup"], "lang": "de", "n": 1},
        {"id": "b", "picture": f"data:image/jpeg;base64,{encoded}", "text": "x"},
        {"id": "c", "picture": None, "text": "words alone", "lang": "fr"},
        {"id": "d", "picture": f"{tmp_path}/img/a.jpg"},
        {"id": "e", "picture": "img\\a.jpg"},
        {"id": "f", "picture": "https://shop.example/a.jpg"},
        {"id": "g", "picture": "img/none.jpg"},
        {"id": "h"},
    ]
    left_out = LeftOut()
    found = records(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)), left_out)

    first, second, third, *files, url, missing, empty = found
    assert [each.caption_id for each in first.captions] == ["1#de-0", "1#de-1"]
    assert (first.image.read(), first.attributes) == (JPG, {"n": 1})
    assert first.image.stat() is not None
    assert (second.image.read(), second.image.stat()) == (JPG * 10, None)
    assert (third.text, third.captions) == ("words alone", ())
    assert third.attributes == {"language": "fr"}
    assert [each.image.read() for each in files] == [JPG, JPG]
    for record, error in ((url, PictureIsUrl), (missing, PictureFileMissing)):
        with pytest.raises(error, match=r"a\.jsonl: line [67] names"):
            record.image.read()
    with pytest.raises(
        PictureMissing, match=r"neither a picture nor a text.*--column image=COLUMN"
    ):
        empty.image.read()


WRITTEN: list[tuple[bytes, dict[str, Any]]] = [
    (
        codecs.BOM_UTF8 + b"id,text,price,stock,new,zip\r\n1,a,9.5,3,True,01067\r\n"
        b'2,"two\r\nlines, ""so""",,4,false,10115\r\n\r\n',
        {
            "1": {"price": 9.5, "stock": 3, "new": True, "zip": "01067"},
            "2": {"stock": 4, "new": False, "zip": "10115"},
        },
    ),
    (
        "id;Größe;Preis (€);Menge;text\n1;38;1.234,50;1.200;a\n2;40;-5;7;b\n".encode("cp1252"),
        {
            "1": {"Grosse": 38, "Preis": 1234.5, "Menge": 1200.0},
            "2": {"Grosse": 40, "Preis": -5.0, "Menge": 7.0},
        },
    ),
    ("sep=;\nid;n;text\n1;ü;a".encode("utf-16"), {"1": {"n": "ü"}}),
    (b"sep=\r\nid;n;text\r\n1;2;a", {"1": {"n": 2}}),
    (
        b"id,text,a,b,c,d\n1,x,NA,NA,9223372036854775807,9223372036854775808\n"
        b'2,x,1e-05,DE,1,"1,234"\n3,x,nan\n',
        {
            "1": {"b": "NA", "c": 2**63 - 1, "d": str(2**63)},
            "2": {"a": 1e-05, "b": "DE", "c": 1, "d": "1,234"},
            "3": {},
        },
    ),
    (
        b"id\ttext\tsplit\tfile\tin\tn\tn\n1\ta\tspring\tx\t3\t1\t2\n",
        {"1": {"split": "spring", "file": "x", "in": 3, "n": 1, "n_7": 2}},
    ),
]


def test_columns_of_a_csv_have_types(tmp_path: Path) -> None:
    """As spreadsheets and pandas write them; packed ones read the same."""
    for content, expected in WRITTEN:
        for name, data in (("a.csv", content), ("a.csv.gz", gzip.compress(content))):
            found = by_id(records(tmp_path / name, data, LeftOut()))

            assert found == expected
            for record_id, attributes in found.items():
                types = {name: type(value) for name, value in attributes.items()}
                assert types == {name: type(value) for name, value in expected[record_id].items()}


def test_of_rows_with_one_id_the_last_counts(tmp_path: Path) -> None:
    """Also in another file, and of pictures' paths; the others are counted by name."""
    (tmp_path / "files").mkdir()
    first = "id,text,n\na,one,1\nb,two,2\na,three,3\n"
    (tmp_path / "files" / "1.csv").write_text(first)
    pq.write_table(
        pa.table({"id": ["c", "b"], "text": ["x", "y"]}), tmp_path / "files" / "2.parquet"
    )
    (tmp_path / "files" / "3.jsonl").write_text('{"id": "a", "text": "four"}\n{"id": "d"}')
    left_out = LeftOut()

    found = list(read_table(tmp_path / "files", "test", left_out=left_out))

    assert [(each.record_id, each.text) for each in found] == [
        *(("c", "x"), ("b", "y"), ("a", "four"), ("d", None)),
    ]
    assert left_out.file_counts == {FileFault.REPLACED: 3}
    [_, named] = left_out.file_lines()
    assert named.endswith(f"a ({tmp_path}/files/1.csv: line 4)"), named
    paths = "image,text\nimg/a.jpg,one\nimg/a.jpg,two\nimg/b.jpg,x\nimg/a.jpg,three\n"
    other, last = records(tmp_path / "a.csv", paths, left_out)
    assert [each.text for each in last.captions] == ["three"]
    assert other.record_id == "img/b.jpg"


def test_rows_and_values_that_cannot_be_are_named(tmp_path: Path) -> None:
    """Each alone; nothing else of the row or table is lost."""
    long = json.dumps({"id": "a", "text": "t", "n": 2**70, "x": "x" * 2000, "l": [1], "ok": True})
    lines = [long, '{"id": "b", "d": {"e": 1}, "f": NaN}', '{"id": null}', '{"id": {}}']
    lines += ["[]", "{"]
    left_out = LeftOut(goes_on=True)

    found = by_id(records(tmp_path / "a.jsonl", "\n".join(lines), left_out))

    assert found == {"a": {"ok": True}, "b": {}}
    assert left_out.counts == {ReaderFault.MALFORMED: 4}
    place = tmp_path / "a.jsonl"
    assert left_out.column_counts == {
        f"{place}: n: n is an integer of over 64 bits": 1,
        f"{place}: x: x has 2,000 bytes": 1,
        f"{place}: l: it is of type list": 1,
        f"{place}: d: it is of type dict": 1,
    }
    left_out = LeftOut(goes_on=True)
    wide = ",".join(["id", "text", *(f"c{n}" for n in range(70)), "日本"])
    cells = ",".join(["1"] * 73)
    [row] = records(tmp_path / "b.csv", f"{wide}\n{cells}\n{cells},2\n", left_out)
    assert len(row.attributes) == 61
    assert len(left_out.column_counts) == 10
    assert "line 3 has 74 cells, and the first row 73" in left_out.first[0]


def test_columns_are_named_by_the_caller(tmp_path: Path) -> None:
    """For what they are, or as attributes; an empty name is none."""
    table = "Artikel,image,titel,日本,caption,text\nK1,x,a cup,3,y,z\n"
    named = {"id": "Artikel", "image": "", "text": "titel", "origin": "日本"}

    [row] = records(tmp_path / "a.csv", table, LeftOut(), **named)

    assert (row.record_id, row.text) == ("K1", "a cup")
    assert row.attributes == {"origin": 3, "image": "x", "caption": "y", "text": "z"}
    with pytest.raises(CorpusMalformed, match="no column 'sku'; it has: Artikel, image"):
        records(tmp_path / "a.csv", table, LeftOut(), id="sku")


def test_rows_of_one_picture_are_its_captions(tmp_path: Path) -> None:
    """As in Flickr8k's captions.txt, where a row has no id of its own."""
    table = 'image,caption\nimg/a.jpg,A child\nimg/a.jpg,"A girl, going"\nimg/b.jpg,A dog\n'

    first, second = records(tmp_path / "captions.txt", table, LeftOut())

    assert [each.text for each in first.captions] == ["A child", "A girl, going"]
    assert (first.record_id, second.record_id) == ("img/a.jpg", "img/b.jpg")


def test_a_column_of_splits_divides_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,text,split\n1,a,train\n2,b,test\n3,c,\n")

    read = {split: by_id(list(read_table(path, split))) for split in ("train", "test", "all", "*")}

    assert [sorted(each) for each in read.values()] == [["1"], ["2"], ["3"], ["1", "2", "3"]]
    whole = by_id(list(read_table(path, "test", columns={"split": ""})))
    assert [each.get("split") for each in whole.values()] == ["train", "test", None]


def test_parquet_has_types_of_its_own(tmp_path: Path) -> None:
    """In several row groups; a day in the name of a file is no split."""
    moment = datetime(2026, 1, 1, 9, tzinfo=UTC)
    table = pa.table(
        {
            "id": pa.array(["a", "b", "c"]).dictionary_encode(),
            "image": [JPG] * 3,
            "caption": pa.array(["x", "y", "z"], pa.large_string()),
            "price": pa.array([Decimal("9.50"), None, Decimal(1)], pa.decimal128(10, 2)),
            "real": pa.array([19.99, None, float("nan")], pa.float32()),
            "tags": [["r", "g"], None, []],
            "moment": pa.array([moment.replace(tzinfo=None)] * 3, pa.timestamp("ns")),
            "zoned": pa.array([moment] * 3, pa.timestamp("ms", "Asia/Tokyo")),
            "day": [date(2026, 1, 1)] * 3,
            "time": pa.array([time(9)] * 3, pa.time64("us")),
            "none": pa.nulls(3),
            "large": pa.array([2**64 - 1, 5, None], pa.uint64()),
            "flag": [True, None, False],
            "far": pa.array([2932897] * 3, pa.date32()),
            "vector": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32())),
            "blob": [b"x"] * 3,
            "struct": [{"a": 1}] * 3,
        }
    )
    path = tmp_path / "items_2026-11-28.parquet"
    pq.write_table(table, path, row_group_size=2)
    left_out = LeftOut()

    found = list(read_table(path, "test", left_out=left_out))

    times = {
        "moment": "2026-01-01T09:00:00",
        "zoned": "2026-01-01T09:00:00+00:00",
        "day": "2026-01-01",
        "time": "09:00:00",
    }
    assert by_id(found) == {
        "a": {"price": 9.5, "real": 19.99, "tags": ("r", "g"), "flag": True, **times},
        "b": {"large": 5, **times},
        "c": {"price": 1.0, "tags": (), "flag": False, **times},
    }
    assert found[2].image.read() == JPG
    left = {key.split(": ")[1]: count for key, count in left_out.column_counts.items()}
    assert left == {"large": 1, "far": 3, "vector": 3, "blob": 3, "struct": 3}
    assert by_id(list(read_table(path, "all"))) == by_id(found)

    pq.write_table(table.drop_columns(["image", "large", "far", "blob"]), path)
    assert len(list(read_table(path, "test", left_out=(texts := LeftOut())))) == 3
    assert {key.split(": ")[1] for key in texts.column_counts} == {"vector", "struct"}


def test_a_quotation_mark_that_is_never_closed_takes_in_no_rows_unsaid(tmp_path: Path) -> None:
    table = 'id,text\r\n1,"a\r\ncup"\r\n\r\n2,"a jug\r\n3,a pot\r\n'

    with pytest.raises(CorpusMalformed, match="row 3 has a quotation mark that is never closed"):
        records(tmp_path / "a.csv", table, LeftOut())
    with pytest.raises(CorpusMalformed, match="row 1 has a quotation mark that is never closed"):
        records(tmp_path / "a.csv", 'id,"text\n1,a\n', LeftOut())
    for end in ("", "\n", "\n\n"):
        whole = f'id,text\n1,a\n2,"b{end}"{end}'
        assert len(records(tmp_path / "b.csv", whole, LeftOut())) == 2


def test_names_of_folders_are_columns(tmp_path: Path) -> None:
    """As Hive, Spark and pyarrow write them, of tables of each kind; the table's own come first."""
    rows = {"a.csv": "id,text,n\n1,x,7\n", "b.jsonl": '{"id": 2, "text": "y"}\n'}
    for name, content in rows.items():
        folder = (
            tmp_path
            / "Color=dark%20red"
            / "n=025"
            / "year=2026"
            / "none=__HIVE_DEFAULT_PARTITION__"
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    pq.write_table(pa.table({"id": [3], "text": ["z"]}), folder / "c.parquet")

    found = by_id(list(read_table(tmp_path, "test")))

    shared = {"Color": "dark red", "year": 2026}
    assert found == {
        "1": {**shared, "n": 7},
        "2": {**shared, "n": "025"},
        "3": {**shared, "n": "025"},
    }
    [first, *_] = read_table(tmp_path, "test", columns={"Farbe": "Color"})
    assert first.attributes["Farbe"] == "dark red"
    pictures = read_table(tmp_path, "test", columns={"image": "Color"})
    assert [each.record_id for each in pictures] == ["1", "2", "3"]


def test_what_makes_a_column_of_texts_is_said(tmp_path: Path) -> None:
    """Infinity does not: it is left out alone, as in the other tables."""
    left_out = LeftOut()
    table = "id,text,price,size\n1,1,9.5,inf\n2,b,on request,3\n3,c,,-inf\n"

    found = by_id(records(tmp_path / "a.csv", table, left_out))

    assert found == {"1": {"price": "9.5"}, "2": {"price": "on request", "size": 3.0}, "3": {}}
    assert left_out.notes == ["price is a text in every row, as 'on request' is one"]
    assert left_out.column_counts == {
        f"{tmp_path / 'a.csv'}: size: size is inf": 1,
        f"{tmp_path / 'a.csv'}: size: size is -inf": 1,
    }
    with pytest.raises(NothingRead):
        records(tmp_path / "b.csv", "sku,price\n", LeftOut(), id="sku")
    for nothing in ("sep=;\n", "sep="):
        with pytest.raises(NothingRead):
            records(tmp_path / "b.csv", nothing, LeftOut())
