"""Parquet files with a picture and its captions in each row.

    image                bytes, or the struct {bytes, path} that Hugging Face's datasets write
    captions or caption  a text or a list of texts; of a row's two the first that has any
    id                   optional: a text or a number, unlike every other row's
    split                optional: a text; otherwise the file's name says it, as told in `shards`
    language             optional: a text

Needs the extra `parquet`: importing this module without it raises ExtraMissing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tandem.corpus.caption_text import (
    CAPTION_FIELDS,
    LANGUAGE_FIELD,
    caption_field,
    language_field,
    numbered_captions,
)
from tandem.corpus.errors import (
    CorpusMalformed,
    ExtraMissing,
    PictureFileMissing,
    PictureMissing,
    SplitUnknown,
)
from tandem.corpus.image_sources import check_size, image_file
from tandem.corpus.records import Caption, Record
from tandem.corpus.shards import ShardFile, shards_by_split

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ExtraMissing(what="parquet files are read with pyarrow", extra="parquet") from error

# A row group is the least that can be read: one picture costs all of its group's.
MAX_GROUP_BYTES: Final = 2 * 2**30
# Cells that are equal lie in a file once, by a few bytes each, and are unpacked one by one: what a
# group takes shows only on the way. Texts are small and unpacked so many rows at a time.
_TEXT_ROWS: Final = 64

_SUFFIX: Final = ".parquet"
_IMAGE: Final = "image"
_ID, _SPLIT = "id", "split"
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_BROKEN = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """An image source that is a row of a parquet file.

    The last two row groups' pictures stay in memory, so that reading in the corpus's order reads
    each group once. In any other order a picture may cost as much as its group.
    """

    file: Path
    group: int
    row: int
    """In the group."""
    place: str
    max_group_bytes: int

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Returns the picture's bytes, or those of the file beside the corpus that the row names.

        Raises PictureMissing for an empty cell, PictureFileMissing where a file is not there, and
        PictureTooLarge as files do. Raises CorpusMalformed where the group's pictures have over
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
            return image_file(self.file.parent, name, str(self)).read()
        raise PictureMissing(f"{self} has an empty {_IMAGE}; fill it or take the row out")


def read_parquet(
    path: Path, split: str, language: str = "en", max_group_bytes: int = MAX_GROUP_BYTES
) -> Iterator[Record]:
    """Yields a split's records, file by file, in the order of their rows.

    Captions are in `language` where no column says another. A record's id is its row's, or its
    file's name and row number from 0. Rows are read group by group, pictures when asked for.

    Raises at the call CorpusFileMissing, SplitUnknown, and CorpusMalformed for a file that is no
    parquet, lacks a column, or has a row group over `max_group_bytes`, decompressed. A picture's
    `read` raises it for a group that only turns out so. Raises CorpusMalformed where a row is due
    whose id is of another kind or not its own. A caption or language of another kind is its
    record's `captions_fault`.
    """
    shards = shards_by_split(path, _SUFFIX)
    splits: dict[str, list[ShardFile]] = {}
    for file_split, its_shards in shards.items():
        for shard in its_shards:
            for each in _splits_in(shard.path, max_group_bytes) or {file_split}:
                splits.setdefault(each, []).append(shard)
    if split not in splits:
        raise SplitUnknown(place=path, split=split, known=splits)
    return _records(splits[split], split, language, max_group_bytes)


def _splits_in(file: Path, max_group_bytes: int) -> set[str]:
    """Returns the splits that the rows of a file name; checks the file on the way."""
    try:
        with pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            _check_columns(file, parquet.schema_arrow)
            _check_groups(file, parquet.metadata, max_group_bytes)
            if _SPLIT not in names:
                return set()
            splits: set[str] = set()
            for batch in parquet.iter_batches(columns=[_SPLIT], batch_size=_TEXT_ROWS):
                column = batch.column(0).to_pylist()
                if not all(isinstance(each, str) for each in column):
                    raise CorpusMalformed(
                        f"{file} has rows whose {_SPLIT} is no text; fill the column"
                    )
                splits.update(column)
    except _BROKEN as error:
        raise _no_parquet(file, error) from error
    return splits


def _check_columns(file: Path, schema: pa.Schema) -> None:
    there = ", ".join(schema.names)
    if _IMAGE not in schema.names or not set(CAPTION_FIELDS) & set(schema.names):
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
    shards: list[ShardFile], split: str, language: str, max_group_bytes: int
) -> Iterator[Record]:
    seen: set[str] = set()
    for shard in shards:
        for number, source, row in _rows(shard.path, split, max_group_bytes):
            place = str(source)
            record_id = _record_id(row, place, default=f"{shard.name}/{number}")
            if record_id in seen:
                raise CorpusMalformed(
                    f"{place} is a second {record_id!r}; give it an id of its own"
                )
            seen.add(record_id)
            captions: tuple[Caption, ...] = ()
            fault = None
            try:
                its_language = language_field(row, place) or language
                captions = numbered_captions(record_id, caption_field(row, place), its_language)
            except CorpusMalformed as error:
                fault = str(error)
            yield Record(record_id, captions, split, record_id, source, captions_fault=fault)


def _rows(
    file: Path, split: str, max_group_bytes: int
) -> Iterator[tuple[int, ParquetImage, dict[str, Any]]]:
    """Yields the number, picture, and other cells by column, of each row of the split."""
    try:
        with pq.ParquetFile(file) as parquet:
            wanted = {*CAPTION_FIELDS, _ID, _SPLIT, LANGUAGE_FIELD}
            columns = [name for name in parquet.schema_arrow.names if name in wanted]
            first_row = 0
            for group in range(parquet.num_row_groups):
                batches = parquet.iter_batches(_TEXT_ROWS, row_groups=[group], columns=columns)
                rows = (row for batch in batches for row in batch.to_pylist())
                number = -1
                for number, row in enumerate(rows):
                    if row.get(_SPLIT, split) == split:
                        place = f"{file}: row {first_row + number}"
                        source = ParquetImage(file, group, number, place, max_group_bytes)
                        yield first_row + number, source, row
                first_row += number + 1
    except _BROKEN as error:
        raise _no_parquet(file, error) from error


def _record_id(row: dict[str, Any], place: str, default: str) -> str:
    if _ID not in row:
        return default
    if not isinstance(row[_ID], (str, int)):
        raise CorpusMalformed(f"{place} has the {_ID} {row[_ID]!r}; make it a text or a number")
    return str(row[_ID])


@lru_cache(maxsize=2)
def _image_cells(
    file: Path, group: int, max_group_bytes: int, _mtime_ns: int, _size_bytes: int
) -> list[pa.Scalar]:
    """Returns a group's pictures; time and size are there to tell a file from its successor."""
    cells: list[pa.Scalar] = []
    total_bytes = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(1, row_groups=[group], columns=[_IMAGE]):
            total_bytes += batch.nbytes
            if total_bytes > max_group_bytes:
                raise _group_too_large(file, group, f"over {max_group_bytes:,}", max_group_bytes)
            cells.append(batch.column(0)[0])
    return cells


def _group_too_large(file: Path, group: int, got: str, max_group_bytes: int) -> CorpusMalformed:
    return CorpusMalformed(
        f"{file}: row group {group} has {got} bytes, the limit is {max_group_bytes:,}; write the "
        "file again with fewer rows a group"
    )


def _no_parquet(file: Path, error: Exception) -> CorpusMalformed:
    return CorpusMalformed(f"{file} is no whole parquet file ({error}); fetch it again")
