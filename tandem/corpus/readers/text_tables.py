"""Reads tables of text: CSV as spreadsheets and pandas write it, and JSON Lines; also as .gz."""

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

from tandem.contract.filtering.attributes import AttributeValue
from tandem.contract.filtering.plain_values import plain_value
from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.caption_text import LANGUAGE_FIELD, decoded, numbered_lines
from tandem.corpus.readers.image_sources import MAX_READ_BYTES
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.readers.shards import ShardFile

Row = tuple[int, str, dict[str, Any]]
"""The number of a row from 0, its place for messages, and its cells by column."""

MAX_ROW_BYTES: Final = 2 * MAX_READ_BYTES
"""A row may have a picture in base64."""
_MAX_SPLIT_COUNT: Final = 32
_NUMBERS: Final = {"integer", "real", "dotted", "comma"}
# What Hive, Spark and pyarrow write for none.
_NO_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# What a quotation mark that is never closed takes in, with all lines before it.
_END: Final = "\4"
_DELIMITERS: Final = ",;\t|"
_BROKEN: Final = (csv.Error, EOFError, OSError, zlib.error)
_CELL: Final = re.compile(
    r"""\s*(?:(?P<missing>|nan|n/a|na|null|none)
    | (?P<integer>-?(?:0|[1-9]\d{0,18}))
    | (?P<dotted>-?[1-9]\d{0,2}\.\d{3})
    | (?P<real>-?(?:0|[1-9]\d*)?\.\d+(?:e[+-]\d+)?|-?\d+e[+-]\d+|-?inf)
    | (?P<comma>-?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+),\d+)
    | (?P<flag>true|false))\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_OF_KINDS: Final[list[tuple[set[str], Callable[[str], AttributeValue]]]] = [
    ({"integer"}, int),
    ({"integer", "real"}, float),
    ({"integer", "comma"}, lambda cell: float(cell.replace(".", "").replace(",", "."))),
    ({"flag"}, lambda cell: cell.strip().lower() == "true"),
]


class Table:
    """A file of rows. Opening it reads it once, to learn what columns it has."""

    partitions: Mapping[str, AttributeValue | None] = {}
    """Columns of which the names of the file's folders have the cell."""
    odd_cells: Mapping[str, str] = {}
    """Of a column that begins with numbers, the first cell that is not one."""

    def __init__(self, shard: ShardFile, split_column: str, left_out: LeftOut) -> None:
        """Raises CorpusMalformed for a file that is no such table."""
        self.shard = shard
        self.row_count = 0
        self.columns: dict[str, None] = {}
        self.splits: set[str] = set()
        """What is in the column that may give the split, up to a number."""
        self.left_out = LeftOut(goes_on=True)
        self.scan(split_column)
        for each in self.left_out.notes:
            left_out.note(each)
        self.left_out = left_out
        self.partitions = {
            name: None if value == _NO_PARTITION else cell_value(unquote(value))
            for name, value in shard.partitions.items()
            if name not in self.columns and name.lower() not in ("split", LANGUAGE_FIELD)
        }
        self.columns |= dict.fromkeys(self.partitions)

    def rows(self, _image: str = "", _only: Collection[str] | None = None) -> Iterator[Row]:
        """Yields the rows, with `_image` as the column of pictures; leaves out unreadable ones.

        No other columns than `_only` need be read, if they are given.
        """
        raise NotImplementedError

    def value(self, _column: str, cell: object) -> AttributeValue | None:
        """Returns a cell as an attribute's value; None if it is missing. Raises TypeError."""
        return plain_value(cell)

    def scan(self, split_column: str) -> None:
        """Reads the columns, the number of rows and the splits."""
        for _, _, row in self.rows():
            self.row_count += 1
            for name, cell in row.items():
                self.columns.setdefault(name)
                self.learn(name, cell)
            split = row.get(split_column, 0)
            if len(self.splits) <= _MAX_SPLIT_COUNT and (split is None or isinstance(split, str)):
                self.splits.add(split or "")

    def learn(self, name: str, cell: object) -> None:
        """Learns from a cell what kind of column it is in."""


class CsvTable(Table):
    """A file of rows whose first has the names of the columns.

    Cells are separated by commas, semicolons, tabs or bars. A column is of numbers or flags if all
    of its cells are, or are missing; otherwise of texts, as "007" is.
    """

    def scan(self, split_column: str) -> None:
        """Also finds the encoding, and what each column is of."""
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
        for self._encoding in ("utf-8-sig", "cp1252"):
            self.row_count, self._kinds = 0, defaultdict[str, set[str]](set)
            self.odd_cells: dict[str, str] = {}
            try:
                super().scan(split_column)
                break
            except UnicodeDecodeError as error:
                if self._encoding == "cp1252":
                    raise CorpusMalformed(f"{self.shard.path} is not UTF-8: {error}") from error
                self.left_out.note(f"{self.shard.path} is not UTF-8: it is read as Windows-1252")
        # "1.234" is a number of thousands in a file that has "19,99".
        dotted = "comma" if any("comma" in found for found in self._kinds.values()) else "real"
        self._readers = {
            name: _reader_of({dotted if kind == "dotted" else kind for kind in found})
            for name, found in self._kinds.items()
        }

    def learn(self, name: str, cell: Any) -> None:  # noqa: ANN401
        """Learns from a cell."""
        found = self._kinds[name]
        if cell is None or "text" in found:
            return
        kind = _kind(cell)
        # Between commas, "1,234" may be a number of thousands.
        if kind == "comma" and self._delimiter == ",":
            kind = "text"
        if kind == "text" and found & _NUMBERS:
            self.odd_cells[name] = cell
        found.add(kind)

    def value(self, column: str, cell: Any) -> AttributeValue | None:  # noqa: ANN401
        """Returns a cell as what its column is of."""
        read = self._readers.get(column)
        if read is None:  # of the names of folders
            return super().value(column, cell)
        match = None if read is str else _CELL.fullmatch(cell)
        return None if match and match["missing"] is not None else read(cell)

    def rows(self, _image: str = "", _only: Collection[str] | None = None) -> Iterator[Row]:
        """Yields the rows that are not blank; an empty cell is None."""
        path, number = self.shard.path, -1
        try:
            with open_plain_file(path, self.shard.root) as packed:
                file: Any = gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else packed
                is_utf16 = file.peek(2)[:2] in _UTF16
                text = io.TextIOWrapper(file, "utf-16" if is_utf16 else self._encoding, newline="")
                first = text.readline(MAX_ROW_BYTES)
                # Excel's own line, which is no row.
                is_said = first.lower().startswith("sep=")
                header = text.readline(MAX_ROW_BYTES) if is_said else first
                said = first[4:5].strip("\r\n") if is_said else ""
                self._delimiter = said or _delimiter(header)
                read = iter(partial(text.readline, MAX_ROW_BYTES), "")
                lines = chain([header], read, [_END])
                reader = csv.reader(lines, delimiter=self._delimiter)
                names = _named(next(reader, []))
                self.columns |= dict.fromkeys(names)
                for number, cells in enumerate(filter(any, reader)):
                    if cells == [_END]:
                        break
                    place = f"{path}: line {reader.line_num + is_said}"
                    if len(cells) > len(names):
                        there = f"{place} has {len(cells)} cells, and the first row {len(names)}"
                        self.left_out.refuse(CorpusMalformed(f"{there}; correct it"))
                        continue
                    row = zip(names, cells, strict=False)
                    yield number, place, {name: cell or None for name, cell in row}
                else:
                    raise csv.Error(f"row {number + 2:,} has a quotation mark that is never closed")
        except _BROKEN as error:
            raise CorpusMalformed(f"{path} is not a whole table ({error}); correct it") from error


class JsonLinesTable(Table):
    """A file with a JSON object on each line."""

    def rows(self, _image: str = "", _only: Collection[str] | None = None) -> Iterator[Row]:
        """Yields the rows of lines that are not blank."""
        path = self.shard.path
        lines = numbered_lines(path, self.shard.root, MAX_ROW_BYTES)
        for count, (number, line) in enumerate(each for each in lines if each[1].strip()):
            place = f"{path}: line {number}"
            try:
                row = json.loads(decoded(line, place))
                if not isinstance(row, dict):
                    raise CorpusMalformed(f"{place} is not an object; write one, by column")
            except CorpusMalformed as error:
                self.left_out.refuse(error)
            except (ValueError, RecursionError) as error:
                self.left_out.refuse(CorpusMalformed(f"{place} is not JSON ({error}); correct it"))
            else:
                yield count, place, row


def cell_value(cell: str) -> AttributeValue:
    """Returns a cell as what it is alone, without a column: a number, a flag or a text."""
    kind = _kind(cell)
    return _reader_of({"real" if kind == "dotted" else kind} - {"comma"})(cell)


def _kind(cell: str) -> str:
    match = _CELL.fullmatch(cell)
    kind = (match and match.lastgroup) or "text"
    is_long = kind == "integer" and not -(2**63) <= int(cell) < 2**63
    return "text" if is_long else kind


def _reader_of(kinds: set[str]) -> Callable[[str], AttributeValue]:
    """Returns what reads the cells of a column that has such cells."""
    there = kinds - {"missing"}
    return next((read for of, read in _OF_KINDS if there and there <= of), str)


def _delimiter(line: str) -> str:
    return max(_DELIMITERS, key=lambda each: len(next(csv.reader([line], delimiter=each), [])))


def _named(cells: list[str]) -> list[str]:
    """Returns the names of columns; a second one of a name has a number."""
    names: list[str] = []
    for number, cell in enumerate(cells, start=1):
        name = cell.strip() or f"column {number}"
        names.append(f"{name} {number}" if name in names else name)
    return names
