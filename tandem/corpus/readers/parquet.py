"""Reads parquet files as tables: pictures by row groups, other columns in batches.

Needs the extra `parquet`: importing this module without it raises ExtraMissing.
"""

from collections.abc import Collection, Iterator
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
from tandem.corpus.left_out import FileFault
from tandem.corpus.readers.image_sources import check_size, file_state, image_file
from tandem.corpus.readers.text_tables import Row, Table
from tandem.corpus.records import FileState, ImageSource

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ExtraMissing(what="parquet files are read with pyarrow", extra="parquet") from error

# A row group is the smallest unit that can be read: one picture costs the whole group.
MAX_GROUP_BYTES: Final = 2 * 2**30
# Equal cells are stored once and take a few bytes each until they are decoded, so a group's real
# size shows only then. Pictures are decoded one by one, other cells this many rows at a time.
_BATCH_ROWS: Final = 256

_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
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
    column: str
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
                self.file,
                self.group,
                self.column,
                self.max_group_bytes,
                stat.st_mtime_ns,
                stat.st_size,
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
        raise PictureMissing(f"{self} has an empty {self.column}; fill it or remove the row")

    def stat(self) -> FileState | None:
        """Returns the parquet file's state."""
        return file_state(self.file)


class ParquetTable(Table):
    """A parquet file."""

    max_group_bytes = MAX_GROUP_BYTES
    """Of a group's pictures, decompressed."""

    def scan(self, split_column: str) -> None:
        """Raises CorpusMalformed for a file that is not parquet, or with a row group too large."""
        file = self.shard.path
        try:
            with pq.ParquetFile(file) as parquet:
                _check_groups(file, parquet.metadata, self.max_group_bytes)
                self._schema = parquet.schema_arrow
                self.row_count = parquet.metadata.num_rows
                self.columns = dict.fromkeys(self._schema.names)
                if len(self.columns) < len(names := self._schema.names):
                    raise CorpusMalformed(f"{file} has two columns of one name among {names}")
                if split_column in self.columns and _is_read(self._schema.field(split_column).type):
                    for batch in parquet.iter_batches(columns=[split_column]):
                        self.splits |= {each or "" for each in batch.column(0).unique().to_pylist()}
        except _BROKEN as error:
            raise _no_parquet(file, error) from error

    def rows(self, image: str = "", only: Collection[str] | None = None) -> Iterator[Row]:
        """Yields the rows; their pictures are read on demand."""
        file, number = self.shard.path, 0
        read = [each.name for each in self._schema if _is_read(each.type) or each.name == "id"]
        read = [name for name in read if only is None or name in only]
        is_image = image in self._schema.names and image not in read
        for name in self._schema.names:
            if only is None and name not in (*read, image):
                why = f"{self._schema.field(name).type}, of which no attribute is"
                self.left_out.column_counts[f"{file}: {name}: {why}"] += self.row_count
        try:
            with pq.ParquetFile(file) as parquet:
                for group in range(parquet.num_row_groups):
                    rows = self._rows(parquet, group, read)
                    missing = self._missing(parquet, group, image) if is_image else set()
                    for in_group, row in enumerate(rows):
                        place = f"{file}: row {number}"
                        if is_image and in_group not in missing:
                            row[image] = ParquetImage(
                                *(file, group, in_group, image, place),
                                *(self.max_group_bytes, self.shard.root),
                            )
                        yield number, place, row
                        number += 1
        except _BROKEN as error:
            self.left_out.refuse(_no_parquet(file, error), FileFault.DAMAGED)

    def _missing(self, parquet: pq.ParquetFile, group: int, image: str) -> set[int]:
        """Returns the rows of a group without a picture; reads pictures only if there are some."""
        described = parquet.metadata.row_group(group)
        chunks = map(described.column, range(described.num_columns))
        counts = [
            each.statistics and each.statistics.null_count
            for each in chunks
            if each.path_in_schema in (image, f"{image}.bytes")
        ]
        if counts and not any(count != 0 for count in counts):
            return set()
        stat = self.shard.path.stat()
        state = self.max_group_bytes, stat.st_mtime_ns, stat.st_size
        try:
            cells = _image_cells(self.shard.path, group, image, *state)
        except CorpusMalformed:  # Each picture says so when it is read.
            return set()
        return {row for row, cell in enumerate(cells) if _is_empty(cell.as_py())}

    def _rows(
        self, parquet: pq.ParquetFile, group: int, read: list[str]
    ) -> Iterator[dict[str, Any]]:
        if not read:
            yield from ({} for _ in range(parquet.metadata.row_group(group).num_rows))
        for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=read):
            columns = [self._cells(name, batch[name]) for name in read]
            yield from (dict(zip(read, row, strict=True)) for row in zip(*columns, strict=True))

    def _cells(self, name: str, column: pa.Array) -> list[Any]:
        """Returns a column's cells; None for one that Python has no value for."""
        kind = column.type
        if pa.types.is_float32(kind):  # by its own digits: 19.99, not 19.989999771118164
            column = column.cast(pa.string()).cast(pa.float64())
        elif pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("us", kind.tz and "UTC"), safe=False)
        elif pa.types.is_time64(kind):
            column = column.cast(pa.time64("us"), safe=False)
        try:
            return list(column.to_pylist())
        except (ValueError, OverflowError):
            return [self._cell(name, each) for each in column]

    def _cell(self, name: str, cell: pa.Scalar) -> object:
        try:
            return cell.as_py()
        except (ValueError, OverflowError):
            why = f"a {cell.type} that Python does not read"
            self.left_out.column_counts[f"{self.shard.path}: {name}: {why}"] += 1
            return None


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, dict) and not any(cell.values()))


def _is_read(kind: pa.DataType) -> bool:
    """Returns whether cells may be attributes, texts or ids: not pictures, vectors, structures."""
    if _is_any_of(_LISTS, kind):
        return _is_any_of(_TEXTS, kind.value_type)
    return not (pa.types.is_nested(kind) or _is_any_of(_BYTES, kind))


def _is_any_of(kinds: tuple[Any, ...], kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


def _check_groups(file: Path, metadata: pq.FileMetaData, max_group_bytes: int) -> None:
    for group in range(metadata.num_row_groups):
        group_bytes = metadata.row_group(group).total_byte_size
        if not 0 <= group_bytes <= max_group_bytes:
            raise _group_too_large(file, group, f"{group_bytes:,}", max_group_bytes)


@lru_cache(maxsize=2)
def _image_cells(
    file: Path, group: int, column: str, max_group_bytes: int, _mtime_ns: int, _size_bytes: int
) -> list[pa.Scalar]:
    """Returns a group's pictures; time and size invalidate the cache when the file changes."""
    cells: list[pa.Scalar] = []
    total_bytes = 0
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(1, row_groups=[group], columns=[column]):
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
