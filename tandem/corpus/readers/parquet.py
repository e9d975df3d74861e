"""Reads Parquet files with a picture and its captions in each row.

    image                bytes, or the struct {bytes, path} that Hugging Face's datasets write
    captions or caption  a text or a list of texts; the first of the two that has any
    caption_0 …          instead of these, numbered: all that a row has
    id                   optional: a text or an integer, unique among the rows
    split                optional: a text; otherwise the file's name gives it (shards.py)
    language or lang     optional: a text

Needs the extra `parquet`: importing this module without it raises ExtraMissing.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tandem.corpus.errors import (
    CorpusMalformed,
    ExtraMissing,
    PictureFileMissing,
    PictureMissing,
)
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
from tandem.corpus.readers.image_sources import check_size, file_state, image_file
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.shards import (
    ShardFile,
    check_one_configuration,
    report_missing_parts,
    shards_by_split,
)
from tandem.corpus.readers.splits import split_named
from tandem.corpus.records import Caption, FileState, ImageSource, Record

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ExtraMissing(what="parquet files are read with pyarrow", extra="parquet") from error

# A row group is the smallest unit that can be read: one picture costs the whole group.
MAX_GROUP_BYTES: Final = 2 * 2**30
# Equal cells are stored once and take a few bytes each until they are decoded, so a group's real
# size shows only then. Pictures are decoded one by one, texts, which are small, this many rows at a
# time.
_TEXT_ROWS: Final = 64

_SUFFIX: Final = ".parquet"
_IMAGE: Final = "image"
_ID, _SPLIT = "id", "split"
_OTHER_TEXTS: Final = (_ID, _SPLIT, LANGUAGE_FIELD, OTHER_LANGUAGE_FIELD)
_NUMBERED_CAPTION = re.compile(r"(?:caption|captions)_?(\d{1,3})")
# Names of columns that look like captions but are not read.
_LIKE_CAPTIONS = re.compile(r"caption|sentence|text|description", re.IGNORECASE)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class ParquetImage(ImageSource):
    """Reads a picture from a row of a parquet file.

    The pictures of the last two row groups stay in memory, so that reading in order decodes each
    group once. In any other order, a picture may cost as much as its group.
    """

    file: Path
    group: int
    row: int
    """Row number within the group."""
    place: str
    max_group_bytes: int
    root: Path | None = None
    """The corpus's folder; None if a file was given."""

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Returns the picture's bytes, or those of the file that the row names.

        Raises PictureMissing for an empty cell, PictureFileMissing for a missing file,
        PictureTooLarge over MAX_READ_BYTES, and CorpusMalformed if the group's pictures have over
        `max_group_bytes`.
        """
        try:
            stat = self.file.stat()
            cells = _image_cells(
                self.file, self.group, self.max_group_bytes, stat.st_mtime_ns, stat.st_size
            )
            cell = cells[self.row].as_py()
        except (*_BROKEN, IndexError) as error:
            raise PictureFileMissing(f"{self} cannot be read: {error}") from error
        fields = cell if isinstance(cell, dict) else {"bytes": cell}
        if (image_bytes := fields["bytes"]) is not None:
            check_size(str(self), len(image_bytes))
            return bytes(image_bytes)
        if name := fields.get("path"):
            return image_file(self.file.parent, name, str(self), self.root).read()
        raise PictureMissing(f"{self} has an empty {_IMAGE}; fill it or remove the row")

    def stat(self) -> FileState | None:
        """Returns the parquet file's state."""
        return file_state(self.file)


def read_parquet(
    path: Path,
    split: str,
    language: str = "en",
    max_group_bytes: int = MAX_GROUP_BYTES,
    left_out: LeftOut | None = None,
) -> RecordStream:
    """Returns a split's records, file by file, in the order of their rows.

    Captions are in `language` unless a column gives another. A record's id is its row's, or its
    file's name and row number from 0. Rows are read group by group, pictures on demand.

    Raises CorpusFileMissing, SplitUnknown, and CorpusMalformed for several configurations at the
    call. Rejects a file that is not parquet, lacks a column, or declares a row group over
    `max_group_bytes`, decompressed; a picture's `read` raises CorpusMalformed for a group that
    exceeds it unannounced. A row without an id is rejected, if others have one. A caption or
    language of another type becomes its record's `captions_fault`.
    """
    left_out = LeftOut() if left_out is None else left_out
    shards = shards_by_split(path, _SUFFIX, left_out)
    splits: dict[str, list[ShardFile]] = {}
    totals: dict[str, int | None] = {}
    for file_split, its_shards in shards.items():
        for shard in its_shards:
            try:
                row_splits, row_count = _splits_in(shard.path, max_group_bytes, left_out)
            except CorpusMalformed as error:
                left_out.refuse(error, FileFault.DAMAGED)
                continue
            for each in row_splits or {file_split}:
                splits.setdefault(each, []).append(shard)
                before = totals.get(each, 0)
                totals[each] = None if row_splits or before is None else before + row_count
    chosen = split_named(split, splits, path, left_out)
    check_one_configuration(splits[chosen], chosen)
    report_missing_parts(splits[chosen], left_out)
    records = _records(splits[chosen], chosen, split, language, max_group_bytes, left_out)
    return RecordStream(records, path, left_out, totals[chosen])


def _splits_in(file: Path, max_group_bytes: int, left_out: LeftOut) -> tuple[set[str], int]:
    """Checks a file and returns the splits that its rows name, and the number of rows."""
    try:
        with pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            _check_columns(file, parquet.schema_arrow)
            _check_groups(file, parquet.metadata, max_group_bytes)
            for name in names:
                if _LIKE_CAPTIONS.search(name) and name not in _caption_columns(names):
                    left_out.pass_over(f"{file}: {name}", FileFault.COLUMN)
            row_count = parquet.metadata.num_rows
            if _SPLIT not in names:
                return set(), row_count
            splits: set[str] = set()
            for batch in parquet.iter_batches(columns=[_SPLIT]):
                splits.update(batch.column(0).to_pylist())
            if not all(isinstance(each, str) for each in splits):
                raise CorpusMalformed(
                    f"{file} has rows whose {_SPLIT} is not text; fill the column"
                )
    except _BROKEN as error:
        raise _no_parquet(file, error) from error
    return splits, row_count


def _caption_columns(names: Iterable[str]) -> list[str]:
    """Returns the caption columns: the two known ones, or else the numbered ones."""
    known = [name for name in names if name in CAPTION_FIELDS]
    numbers = {name: _NUMBERED_CAPTION.fullmatch(name) for name in names}
    numbered = {name: int(match[1]) for name, match in numbers.items() if match}
    return known or sorted(numbered, key=numbered.__getitem__)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    there = ", ".join(schema.names)
    if _IMAGE not in schema.names or not _caption_columns(schema.names):
        raise CorpusMalformed(
            f"{file} needs the columns {_IMAGE} and {' or '.join(CAPTION_FIELDS)}; it has: {there}"
        )
    kind = schema.field(_IMAGE).type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind = kind.field("bytes").type
    if not any(is_bytes(kind) for is_bytes in _BYTES):
        raise CorpusMalformed(
            f"{file}: the column {_IMAGE} is {kind}; it must be bytes or {{bytes, path}}"
        )


def _check_groups(file: Path, metadata: pq.FileMetaData, max_group_bytes: int) -> None:
    for group in range(metadata.num_row_groups):
        group_bytes = metadata.row_group(group).total_byte_size
        if not 0 <= group_bytes <= max_group_bytes:
            raise _group_too_large(file, group, f"{group_bytes:,}", max_group_bytes)


def _records(
    shards: list[ShardFile],
    chosen: str,
    split: str,
    language: str,
    max_group_bytes: int,
    left_out: LeftOut,
) -> Iterator[Record]:
    for shard in shards:
        for number, source, row in _rows(shard, chosen, max_group_bytes, left_out):
            place = str(source)
            try:
                record_id = _record_id(row, place, default=f"{shard.name}/{number}")
            except CorpusMalformed as error:
                left_out.refuse(error)
                continue
            captions: tuple[Caption, ...] = ()
            fault = None
            try:
                its_language = language_field(row, place) or shard.partitions.get(
                    LANGUAGE_FIELD, language
                )
                captions = numbered_captions(record_id, _texts(row, place), its_language)
            except CorpusMalformed as error:
                fault = str(error)
            yield Record(record_id, captions, split, record_id, source, captions_fault=fault)


def _texts(row: dict[str, Any], place: str) -> list[str]:
    if row.keys() & set(CAPTION_FIELDS):
        texts = caption_field(row, place)
    else:
        cells = ({CAPTION_FIELDS[0]: row[name]} for name in _caption_columns(row))
        texts = [text for cell in cells for text in caption_field(cell, place)]
    check_text_bytes(sum(map(len, texts)), place)
    return texts


def _rows(
    shard: ShardFile, split: str, max_group_bytes: int, left_out: LeftOut
) -> Iterator[tuple[int, ParquetImage, dict[str, Any]]]:
    """Yields number, picture and other cells by column of each row of the split."""
    file = shard.path
    try:
        with pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            read = {*_caption_columns(names), *_OTHER_TEXTS}
            columns = [name for name in names if name in read]
            first_row = 0
            for group in range(parquet.num_row_groups):
                batches = parquet.iter_batches(_TEXT_ROWS, row_groups=[group], columns=columns)
                rows = (row for batch in batches for row in batch.to_pylist())
                for number, row in enumerate(rows):
                    if row.get(_SPLIT, split) == split:
                        place = f"{file}: row {first_row + number}"
                        source = ParquetImage(
                            file, group, number, place, max_group_bytes, shard.root
                        )
                        yield first_row + number, source, row
                first_row += parquet.metadata.row_group(group).num_rows
    except _BROKEN as error:
        left_out.refuse(_no_parquet(file, error), FileFault.DAMAGED)


def _record_id(row: dict[str, Any], place: str, default: str) -> str:
    if _ID not in row:
        return default
    value = row[_ID]
    # pandas turns integers into floats if one is missing.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bytes):
        value = decoded(value, f"{place}: the {_ID}")
    if value is None or value != value:  # NaN, which pandas writes for none
        raise CorpusMalformed(f"{place} has no {_ID}; give it one, as the other rows have")
    return str(value)


@lru_cache(maxsize=2)
def _image_cells(
    file: Path, group: int, max_group_bytes: int, _mtime_ns: int, _size_bytes: int
) -> list[pa.Scalar]:
    """Returns a group's pictures; time and size invalidate the cache when the file changes."""
    cells: list[pa.Scalar] = []
    total_bytes = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(1, row_groups=[group], columns=[_IMAGE]):
            total_bytes += batch.nbytes
            if total_bytes > max_group_bytes:
                raise _group_too_large(file, group, f"over {max_group_bytes:,}", max_group_bytes)
            cells.append(batch.column(0)[0])
    return cells


def _group_too_large(file: Path, group: int, got: str, limit: int) -> CorpusMalformed:
    return CorpusMalformed(
        f"{file}: row group {group} has {got} bytes, the limit is {limit:,}; write the file again "
        "with fewer rows a group"
    )


def _no_parquet(file: Path, error: Exception) -> CorpusMalformed:
    return CorpusMalformed(f"{file} is not a whole parquet file ({error}); fetch it again")
