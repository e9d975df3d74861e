"""Reads tables, CSV, JSON Lines or parquet, whose rows are pictures or texts with attributes.

    image                bytes, a path from the table's folder, base64, or the struct {bytes, path}
                         that Hugging Face's datasets write; also picture, photo, file_name …
    captions, caption    a text or a list of texts; or text; or all of caption_0 …
    id                   optional: a text or a number; of rows with one, the last counts
    split                optional, if there are names of splits in it; otherwise the file's name
                         gives it (shards.py)
    language or lang     optional: a text
    any other            an attribute, as is a column in the names of folders: color=red

A row without a picture is the text itself.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from tandem.contract.filtering.attributes import (
    MAX_ATTRIBUTE_COUNT,
    Attributes,
    AttributeValue,
    value_fault,
)
from tandem.contract.filtering.plain_values import attribute_name
from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.left_out import FileFault, LeftOut
from tandem.corpus.readers.caption_text import (
    CAPTION_FIELDS,
    LANGUAGE_FIELD,
    OTHER_LANGUAGE_FIELD,
    caption_field,
    check_text_bytes,
    decoded,
    language_field,
    numbered_captions,
)
from tandem.corpus.readers.image_sources import CellImage, NoImage
from tandem.corpus.readers.record_stream import RecordStream, id_key
from tandem.corpus.readers.shards import (
    ShardFile,
    check_one_configuration,
    report_missing_parts,
    shards_by_split,
)
from tandem.corpus.readers.splits import EVERY_SPLIT, WHOLE_SPLIT, is_well_known, split_named
from tandem.corpus.readers.text_tables import CsvTable, JsonLinesTable, Table
from tandem.corpus.records import Caption, ImageSource, Record, record_id_of

PARQUET: Final = (".parquet",)
_JSON_LINES: Final = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
TABLES: Final = (*PARQUET, *_JSON_LINES, ".csv", ".tsv", ".csv.gz", ".tsv.gz")

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id", "item_id"),
    "image": ("image", "picture", "photo", "image_path", "file_name", "filename"),
    "text": (*CAPTION_FIELDS, "text"),
    "split": ("split",),
    "language": (LANGUAGE_FIELD, OTHER_LANGUAGE_FIELD),
}
"""What a column may be besides an attribute, and the names by which it is found."""
_NUMBERED_CAPTION = re.compile(r"(?:caption|captions)_?(\d{1,3})")
# `tandem ingest` may add the split, the language and an attribute of captions.
_MAX_COLUMN_COUNT: Final = MAX_ATTRIBUTE_COUNT - 3


def read_table(
    path: Path,
    split: str,
    language: str = "en",
    left_out: LeftOut | None = None,
    suffixes: tuple[str, ...] = TABLES,
    columns: Mapping[str, str] | None = None,
) -> RecordStream:
    """Returns a split's records, file by file, in the order of their rows.

    `path` is one file, or a folder with files of `suffixes`. `columns` has columns by what they
    are: one of ROLES, with an empty name for none, or an attribute. A record's id is its row's; or
    the picture's path, of which consecutive rows are captions of one record; or its file's name
    and row number from 0. Captions are in `language` unless a column gives another. A table
    without splits is each of the common ones.

    Raises CorpusFileMissing, SplitUnknown, and CorpusMalformed for several configurations or a
    column that is missing at the call. Rejects a file that is no table, and a row without an id,
    if others have one. A caption or language of another type becomes its record's
    `captions_fault`. Values that no attribute has are counted by column.
    """
    left_out = LeftOut() if left_out is None else left_out
    asked = columns or {}
    given = WHOLE_SPLIT if split == EVERY_SPLIT else split
    splits: dict[str, list[Reader]] = defaultdict(list)
    for file_split, shards in shards_by_split(path, suffixes, left_out).items():
        for shard in shards:
            try:
                table = _opened(shard, asked.get("split", "split"), left_out)
            except CorpusMalformed as error:
                left_out.refuse(error, FileFault.DAMAGED)
                continue
            row_splits = {each or WHOLE_SPLIT for each in table.splits}
            of_file = file_split if is_well_known(file_split) else WHOLE_SPLIT
            is_divided = split in row_splits or any(map(is_well_known, row_splits))
            for each in row_splits if is_divided else {of_file}:
                own = each if is_divided else None
                splits[each].append(Reader(table, own, asked, given, language))
    is_whole = splits.keys() == {WHOLE_SPLIT} and is_well_known(split)
    if is_whole or split == EVERY_SPLIT:
        chosen = [reader for found in splits.values() for reader in found]
    else:
        chosen = splits[split_named(split, splits, path, left_out)]
    check_one_configuration((each.table.shard for each in chosen), split)
    report_missing_parts((each.table.shard for each in chosen), left_out)
    is_counted = all(each.row_split is None for each in chosen)
    total = sum(each.table.row_count for each in chosen) if is_counted else None
    return RecordStream(last_records(chosen), path, left_out, total, is_undivided=is_whole)


def last_records(readers: Sequence["Reader"]) -> Iterator[Record]:
    """Yields the records of tables, of those with one id the last."""
    keys = np.fromiter((id_key(each) for reader in readers for each in reader.ids()), np.int64)
    found, counts = np.unique(keys, return_counts=True)
    left = dict(zip(found[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True))
    for reader in readers:
        yield from reader.records(left)


def _opened(shard: ShardFile, split_column: str, left_out: LeftOut) -> Table:
    name = shard.path.name.lower()
    if name.endswith(PARQUET):
        # Imported here, because pyarrow is an extra and takes a third of a second.
        from tandem.corpus.readers.parquet import ParquetTable

        return ParquetTable(shard, split_column, left_out)
    kind = JsonLinesTable if name.endswith(_JSON_LINES) else CsvTable
    return kind(shard, split_column, left_out)


class Reader:
    """Makes records of a table's rows."""

    def __init__(
        self,
        table: Table,
        row_split: str | None,
        asked: Mapping[str, str],
        split: str,
        language: str,
    ) -> None:
        """Takes the rows with `row_split` in their column of splits; all of a table without one.

        Raises CorpusMalformed for an asked column that is missing.
        """
        self.table, self.row_split = table, row_split
        self._asked, self._split = asked, split
        folders = {name.lower(): value for name, value in self.table.shard.partitions.items()}
        self._language = folders.get(LANGUAGE_FIELD, language)
        self._id, self._image, text, self._by, self._spoken = map(self._found, ROLES)
        matches = ((name, _NUMBERED_CAPTION.fullmatch(name)) for name in self.table.columns)
        numbered = sorted((int(match[1]), name) for name, match in matches if match)
        self._texts = [text] if text else [name for _, name in numbered]
        self._key = itemgetter(1 if self._id else 0)

    def ids(self) -> Iterator[str]:
        """Yields the ids of the records; what cannot be read is left out by `records`."""
        left_out, self.table.left_out = self.table.left_out, LeftOut(goes_on=True)
        only = {self._id or self._image, self._by}
        for _, rows in groupby(self._rows("", only), self._key):
            yield next(rows)[0]
        self.table.left_out = left_out

    def records(self, left: dict[int, int]) -> Iterator[Record]:
        """Yields the records; rows that follow one another with one picture and no id are one.

        Passes over those of which `left`, by the key of their id, has more than one.
        """
        self._attributes = dict(self._named_attributes())
        for _, rows in groupby(self._rows(self._image), self._key):
            (record_id, _, place, row), *more = rows
            if left.get(key := id_key(record_id), 1) > 1:
                left[key] -= 1
                self.table.left_out.pass_over(f"{record_id} ({place})", FileFault.REPLACED)
                continue
            texts: list[str] = []
            language = fault = text = None
            try:
                spoken = self._spoken if self._spoken in ROLES["language"] else LANGUAGE_FIELD
                language = language_field({spoken: row.get(self._spoken)}, place)
                for each in (row, *(other for *_, other in more)):
                    texts += self._texts_of(each, place)
                check_text_bytes(sum(map(len, texts)), place)
            except CorpusMalformed as error:
                texts, fault = [], str(error)
            captions: tuple[Caption, ...] = ()
            cell = row.get(self._image)
            if cell is None and texts:
                text = "\n".join(texts)
            else:
                captions = numbered_captions(record_id, texts, language or self._language)
            attributes = self._attributes_of(row)
            if language and not captions:
                attributes = {LANGUAGE_FIELD: language, **attributes}
            about = captions, self._split, record_id, self._image_of(cell, place)
            yield Record(record_id, *about, attributes, fault, text)

    def _rows(
        self, image: str, only: Collection[str] | None = None
    ) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
        """Yields id, number, place and cells of each row that is meant."""
        for number, place, row in self.table.rows(image, only):
            row.update(self.table.partitions)
            if self.row_split not in (None, row.get(self._by) or WHOLE_SPLIT):
                continue
            try:
                name = self._name_of(row, place) or f"{self.table.shard.name}/{number}"
            except CorpusMalformed as error:
                self.table.left_out.refuse(error)
                continue
            yield record_id_of(name), number, place, row

    def _name_of(self, row: Mapping[str, Any], place: str) -> str | None:
        if not self._id:
            path = row.get(self._image)
            return unicodedata.normalize("NFC", path) if CellImage.is_path(path) else None
        value = row.get(self._id)
        # pandas turns integers into floats if one is missing.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bytes):
            value = decoded(value, f"{place}: the {self._id}")
        # NaN is what pandas writes for none.
        if value in (None, "") or value != value or isinstance(value, bool | dict | list):
            raise CorpusMalformed(f"{place} has no {self._id}; give it one, as the other rows have")
        return str(value)

    def _image_of(self, cell: object, place: str) -> ImageSource:
        if cell is None:
            wanted = f"neither a picture nor a text, of {', '.join(self.table.columns)}; name a "
            return NoImage(place, f"{wanted}column by --column image=COLUMN or text=COLUMN")
        if isinstance(cell, ImageSource):
            return cell
        return CellImage(cell, self.table.shard.path.parent, place)

    def _texts_of(self, row: Mapping[str, Any], place: str) -> list[str]:
        cells = ({CAPTION_FIELDS[0]: row.get(name)} for name in self._texts)
        return [text for cell in cells for text in caption_field(cell, place) if text]

    def _attributes_of(self, row: Mapping[str, Any]) -> Attributes:
        attributes: dict[str, AttributeValue] = {}
        for column, name in self._attributes.items():
            if (cell := row.get(column)) is None:
                continue
            try:
                value = self.table.value(column, cell)
                fault = None if value is None else value_fault(name, value)
            except TypeError as error:
                value, fault = None, str(error)
            if fault is not None:
                self._leave_out(column, fault.partition(";")[0])
            elif value is not None:
                attributes[name] = value
        return attributes

    def _found(self, role: str) -> str:
        """Returns the column of a role: the one asked for, or the first of its names, if any."""
        if role in self._asked:
            return self._asked[role] and self._checked(self._asked[role])
        names = {each.lower(): each for each in reversed(self.table.columns)}
        return next((names[each] for each in ROLES[role] if each in names), "")

    def _checked(self, column: str) -> str:
        if column in self.table.columns:
            return column
        there = f"it has: {', '.join(self.table.columns)}"
        raise CorpusMalformed(f"{self.table.shard.path} has no column {column!r}; {there}")

    def _named_attributes(self) -> Iterator[tuple[str, str]]:
        """Yields the columns that are attributes, and their names."""
        used = {self._id, self._image, *self._texts, self._spoken}
        if self.row_split is not None:
            used.add(self._by)
        names = {
            name: self._checked(column) for name, column in self._asked.items() if name not in ROLES
        }
        for column in [each for each in self.table.columns if each not in {*used, *names.values()}]:
            name = attribute_name(column)
            if not name or name in names:
                self._leave_out(column, "name it by --column NAME=COLUMN", self.table.row_count)
            elif len(names) == _MAX_COLUMN_COUNT:
                why = f"an item has at most {MAX_ATTRIBUTE_COUNT} attributes"
                self._leave_out(column, why, self.table.row_count)
            else:
                names[name] = column
                if name != column:
                    self.table.left_out.note(f"the column {column!r} is the attribute {name}")
        for name, column in names.items():
            if (odd := self.table.odd_cells.get(column)) is not None:
                self.table.left_out.note(f"{name} is a text in every row, as {odd[:40]!r} is one")
        return ((column, name) for name, column in names.items())

    def _leave_out(self, column: str, why: str, count: int = 1) -> None:
        self.table.left_out.column_counts[f"{self.table.shard.path}: {column}: {why}"] += count
