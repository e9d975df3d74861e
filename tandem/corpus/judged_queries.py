"""Reads and writes judged queries: searches with the items that a person found relevant.

    queries/manifest.json    {"format_version": 1, ...}
    queries/queries.jsonl    {"query_id": "q1", "text": "a red bus", "target": "image"}
    queries/qrels.txt        q1 0 bus%20stop.jpg 2

A query's content is its `text`, its `picture` (a file of the folder), or the `item_id` of a stored
item. qrels.txt is TREC's: query id, a column without meaning, item id, grade; a grade of at least 1
is relevant. Ids are percent-encoded in it, because columns end at spaces.

Without a folder, one .jsonl file has the relevant item ids in each line: "relevant": ["bus.jpg"].
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

from tandem.contract.content import Modality
from tandem.contract.identifiers import check_item_id
from tandem.contract.search.query import StoredItem
from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readers.caption_text import decoded, numbered_lines
from tandem.corpus.readers.image_sources import image_file
from tandem.corpus.records import ImageSource
from tandem.errors import ItemIdInvalid
from tandem.platform.files.json_object import object_of, read_object, shown
from tandem.platform.files.whole_file import write_text_whole, write_whole

FORMAT_VERSION: Final = 1
MANIFEST_NAME: Final = "manifest.json"
QUERIES_NAME: Final = "queries.jsonl"
QRELS_NAME: Final = "qrels.txt"
_PICTURES_NAME: Final = "pictures"
_GRADE: Final = re.compile(rb"-?\d{1,2}")
# NUL and lone surrogates, which no message carries.
_NO_TEXT: Final = re.compile("[\0\ud800-\udfff]")
_CONTENTS: Final = ("text", "picture", "item_id")
# quote() leaves letters, digits and "_.-~" too; the percent sign and spaces are encoded.
_PLAIN: Final = "!\"#$&'()*+,/:;<=>?@[\\]^`{|}"


@dataclass(frozen=True, slots=True)
class JudgedQuery:
    """Holds a query and the grades of the items that were judged for it."""

    query_id: str
    content: str | ImageSource | StoredItem
    """A text, a picture that is read on demand, or an item of the searched index."""
    target: Modality
    grades: dict[str, int]
    """By item id; an item without one was not judged."""

    @property
    def relevant_ids(self) -> frozenset[str]:
        return frozenset(item_id for item_id, grade in self.grades.items() if grade > 0)

    @property
    def direction(self) -> str:
        kind = {str: "text", StoredItem: "item"}.get(type(self.content), "image")
        return f"{kind}→{self.target.value}"

    def sent(self) -> str | bytes | StoredItem:
        """Returns what a search takes; reads a picture."""
        return self.content if isinstance(self.content, str | StoredItem) else self.content.read()


def read_judged_queries(path: Path) -> list[JudgedQuery]:
    """Returns the queries of a folder or a .jsonl file, in their order.

    Raises CorpusFileMissing for a missing file, FileInvalid for another manifest, and
    CorpusMalformed, with the line, for one that violates the layout. A missing picture and a link
    out of the folder are found when it is read.
    """
    if not path.is_dir():
        return list(_queries(path, path.parent, has_qrels=False).values())
    version = read_object(path / MANIFEST_NAME).get("format_version")
    if version != FORMAT_VERSION:
        raise CorpusMalformed(
            f"{path / MANIFEST_NAME} has format_version {shown(version)}, not {FORMAT_VERSION}; "
            "read it with the release of Tandem that wrote it"
        )
    queries = _queries(path / QUERIES_NAME, path, has_qrels=True)
    for number, line in numbered_lines(path / QRELS_NAME, path):
        if line.strip():
            _add_grade(queries, line, f"{path / QRELS_NAME}: line {number}")
    return list(queries.values())


def drawn_from(path: Path) -> str:
    """Returns which queries alone were drawn to be judged; empty if all were."""
    manifest = read_object(path / MANIFEST_NAME) if path.is_dir() else {}
    count, systems = manifest.get("query_count", 0), " and ".join(manifest.get("systems", ()))
    is_drawn = manifest.get("drawn_count", count) < count
    return f"queries at which {systems} differ" if is_drawn else ""


def write_judged_queries(
    folder: Path, queries: Iterable[JudgedQuery], about: Mapping[str, Any]
) -> None:
    """Writes queries as a folder that read_judged_queries reads, with copies of their pictures.

    `about` goes into the manifest. Each file replaces an older one atomically.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines, qrels = [], []
    for each in queries:
        content = _written_content(folder, each.content)
        fields = {"query_id": each.query_id, **content, "target": each.target.value}
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
        for item_id, grade in each.grades.items():
            qrels.append(qrels_line(each.query_id, item_id, grade))
    write_text_whole(folder / QUERIES_NAME, "".join(lines))
    write_text_whole(folder / QRELS_NAME, "".join(qrels))
    manifest = {**about, "format_version": FORMAT_VERSION}
    write_text_whole(folder / MANIFEST_NAME, json.dumps(manifest, indent=1) + "\n")


def qrels_line(query_id: str, item_id: str, grade: int) -> str:
    """Returns the line of qrels.txt that judges an item for a query."""
    return f"{quote(query_id, _PLAIN)} 0 {quote(item_id, _PLAIN)} {grade}\n"


def _written_content(folder: Path, content: str | ImageSource | StoredItem) -> Mapping[str, str]:
    if isinstance(content, str):
        return {"text": content}
    if isinstance(content, StoredItem):
        return {"item_id": content.item_id}
    data = content.read()
    name = f"{_PICTURES_NAME}/{sha256(data).hexdigest()[:16]}"
    (folder / _PICTURES_NAME).mkdir(exist_ok=True)
    write_whole(folder / name, lambda fresh: fresh.write_bytes(data))
    return {"picture": name}


def _queries(path: Path, folder: Path, *, has_qrels: bool) -> dict[str, JudgedQuery]:
    """Returns the queries by id; those of a folder without their grades."""
    queries: dict[str, JudgedQuery] = {}
    for number, line in numbered_lines(path, folder if has_qrels else None):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        query = _query(object_of(decoded(line, place), place), place, folder, has_qrels=has_qrels)
        if query.query_id in queries:
            raise CorpusMalformed(f"{place} has query_id {query.query_id!r} again; rename one")
        queries[query.query_id] = query
    if not queries:
        raise CorpusMalformed(f"{path} has no query; put one JSON object in each line")
    return queries


def _query(fields: Mapping[str, Any], place: str, folder: Path, *, has_qrels: bool) -> JudgedQuery:
    [content_name, *more] = [name for name in _CONTENTS if name in fields] or [""]
    if more or not content_name:
        raise CorpusMalformed(f"{place} needs one of text, picture and item_id; correct it")
    query_id, value = (_text(fields, name, place) for name in ("query_id", content_name))
    target = fields.get("target")
    if target not in [each.value for each in Modality]:
        raise CorpusMalformed(f"{place} has target {shown(target)}; put image or text there")
    content: str | ImageSource | StoredItem = value
    if content_name == "picture":
        content = image_file(folder, value, place)
    elif content_name == "item_id":
        content = StoredItem(_item_id(value, place))
    relevant = [] if has_qrels else fields.get("relevant")
    if not isinstance(relevant, list):
        raise CorpusMalformed(f"{place} has no list of item ids under relevant; add it")
    grades = {_item_id(each, place): 1 for each in relevant}
    return JudgedQuery(query_id, content, Modality(target), grades)


def _text(fields: Mapping[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip() or _NO_TEXT.search(value):
        raise CorpusMalformed(f"{place} has {name} {shown(value)}, not a text; correct it")
    return value


def _item_id(value: Any, place: str) -> str:  # noqa: ANN401  whatever the line holds
    try:
        return check_item_id(value)
    except ItemIdInvalid as error:
        raise CorpusMalformed(f"{place}: {error}") from error


def _add_grade(queries: Mapping[str, JudgedQuery], line: bytes, place: str) -> None:
    """Adds a line of qrels to its query."""
    # Of bytes, because str.split() would also split at a no-break space.
    columns = line.split()
    if len(columns) != 4:
        raise CorpusMalformed(
            f"{place} has {len(columns)} columns, not 4: query id, 0, item id, grade; write spaces "
            "of an id as %20"
        )
    query_id, item_id = (decoded(unquote_to_bytes(columns[n]), place) for n in (0, 2))
    if query_id not in queries:
        raise CorpusMalformed(f"{place} judges query {query_id!r}, which {QUERIES_NAME} lacks")
    if not _GRADE.fullmatch(columns[3]):
        raise CorpusMalformed(f"{place} has grade {columns[3]!r}; put a number of -99 to 99 there")
    if item_id in queries[query_id].grades:
        raise CorpusMalformed(f"{place} judges {item_id!r} for {query_id!r} again; keep one line")
    queries[query_id].grades[_item_id(item_id, place)] = int(columns[3])
