"""Judged queries: what is written is read again, and what is wrong is refused by its line."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tandem.contract.content import Modality
from tandem.contract.search.query import StoredItem
from tandem.corpus.errors import CorpusError, CorpusMalformed, PictureOutside
from tandem.corpus.judged_queries import JudgedQuery, read_judged_queries, write_judged_queries
from tandem.corpus.readers.image_sources import ImageFile
from tandem.platform.files.json_object import FileInvalid

GOOD = {"query_id": "q1", "text": "a red bus", "target": "image"}
IDS = (
    "bus stop.jpg",
    "100%.jpg",
    "a%20b",
    "ünï\u00a0cödé\u2028",
    "tab\there",
    "plain/#1?x=[2]",
    "\x1f",
)


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"a cat")
    picture = ImageFile(tmp_path / "cat.jpg", "here")
    written = [
        JudgedQuery("q 1%", "Straße, „Züge\u201c\nund 犬", Modality.IMAGE, dict.fromkeys(IDS, 1)),
        JudgedQuery("q2", picture, Modality.TEXT, {"a": 0, "b": -1, "c": 3}),
        JudgedQuery("q3", StoredItem("my item"), Modality.IMAGE, {}),
    ]

    write_judged_queries(tmp_path / "judged", written, {"made by": "a test"})
    read = read_judged_queries(tmp_path / "judged")

    assert [read[0], read[2]] == [written[0], written[2]]
    assert read[1].grades == written[1].grades
    assert read[1].relevant_ids == {"c"}
    (tmp_path / "cat.jpg").unlink()
    assert not isinstance(read[1].content, str | StoredItem)
    assert read[1].content.read() == b"a cat"


def test_qrels_of_other_programs_are_read(tmp_path: Path) -> None:
    """With tabs, CR LF, a byte order mark, and a percent sign that encodes nothing."""
    folder = _folder(tmp_path, [GOOD], b"\xef\xbb\xbfq1\t0\t100%real.jpg\t1\r\n\r\nq1 Q0 b 0\r\n")

    [query] = read_judged_queries(folder)

    assert query.grades == {"100%real.jpg": 1, "b": 0}


def test_one_file_names_its_relevant_items(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    lines = [GOOD | {"relevant": ["a b", "c"]}, GOOD | {"query_id": "q2", "relevant": []}]
    path.write_text("\n".join(map(json.dumps, lines)))

    first, second = read_judged_queries(path)

    assert first.grades == {"a b": 1, "c": 1}
    assert not second.relevant_ids


WRONG_QUERIES: list[object] = [
    {"text": "x", "target": "image"},
    GOOD | {"query_id": 7},
    GOOD | {"query_id": " "},
    GOOD | {"text": ""},
    GOOD | {"text": "\ud800"},
    GOOD | {"picture": "a.jpg"},
    {"query_id": "q2", "target": "image"},
    GOOD | {"target": "IMAGE"},
    {"query_id": "q2", "picture": "../a.jpg", "target": "text"},
    {"query_id": "q2", "item_id": "x" * 257, "target": "text"},
    GOOD,
    [1],
]


def test_a_wrong_query_is_refused_by_its_line(tmp_path: Path) -> None:
    for line in WRONG_QUERIES:
        folder = _folder(tmp_path, [GOOD, line], b"")
        with pytest.raises((CorpusMalformed, FileInvalid), match=r"queries\.jsonl: line 2\b"):
            read_judged_queries(folder)


WRONG_JUDGEMENTS = [
    b"q1 0 b",
    b"q1 0 a b 1",
    b"q2 0 a 1",
    b"q1 0 a 1",
    b"q1 0 b 1.5",
    b"q1 0 b \xff",
    b"q1 0 %FF 1",
]


def test_a_wrong_judgement_is_refused_by_its_line(tmp_path: Path) -> None:
    for line in WRONG_JUDGEMENTS:
        folder = _folder(tmp_path, [GOOD], b"q1 0 a 1\n" + line)
        with pytest.raises(CorpusMalformed, match=r"qrels\.txt: line 2\b"):
            read_judged_queries(folder)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    empty = _folder(tmp_path, [], b"")

    with pytest.raises(CorpusError, match=r"queries\.jsonl has no query"):
        read_judged_queries(empty)
    (empty / "qrels.txt").unlink()
    (empty / "queries.jsonl").write_text(json.dumps(GOOD))
    with pytest.raises(CorpusError, match=r"qrels\.txt"):
        read_judged_queries(empty)
    (empty / "manifest.json").write_text('{"format_version": 2}')
    with pytest.raises(CorpusError, match="format_version 2"):
        read_judged_queries(empty)
    with pytest.raises(CorpusError, match="relevant"):
        read_judged_queries(empty / "queries.jsonl")


def test_a_picture_outside_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    line = {"query_id": "q1", "picture": "link.jpg", "target": "text"}
    folder = _folder(tmp_path, [line], b"")
    (folder / "link.jpg").symlink_to(tmp_path / "secret")

    [query] = read_judged_queries(folder)

    assert not isinstance(query.content, str | StoredItem)
    with pytest.raises(PictureOutside):
        query.content.read()


def _folder(tmp_path: Path, lines: Sequence[object], qrels: bytes) -> Path:
    folder = tmp_path / "judged"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text('{"format_version": 1}')
    (folder / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (folder / "qrels.txt").write_bytes(qrels)
    return folder
