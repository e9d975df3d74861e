"""Parquet files with a picture and its captions in each row.

    image                bytes, or the struct {bytes, path} that Hugging Face's datasets write
    caption or captions  a text or a list of texts
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

from tandem.corpus.caption_text import numbered_captions
from tandem.corpus.errors import (
    CorpusMalformed,
    ExtraMissing,
    PictureFileMissing,
    PictureMissing,
    SplitUnknown,
)
from tandem.corpus.image_sources import check_size, image_file
from tandem.corpus.records import Record
from tandem.corpus.shards import ShardFile, shards_by_split

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise ExtraMissing(what="parquet files are read with pyarrow", extra="parquet") from error

# A row group is the least that can be read: one picture costs all of its group's.
MAX_GROUP_BYTES: Final = 2 * 2**30

_SUFFIX: Final = ".parquet"
_IMAGE: Final = "image"
_CAPTIONS: Final = ("caption", "captions")
_ID, _SPLIT, _LANGUAGE = "id", "split", "language"
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

    def __str__(self) -> str:
        return self.place

    def read(self) -> bytes:
        """Returns the picture's bytes, or those of the file beside the corpus that the row names.

        Raises PictureMissing for an empty cell, PictureFileMissing where a file is not there, and
        PictureTooLarge as files do.
        """
        try:
            stat = self.file.stat()
            cells = _image_cells(self.file, self.group, stat.st_mtime_ns, stat.st_size)
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
    parquet, lacks a column, or has a row group over `max_group_bytes`, unpacked. Raises
    CorpusMalformed where a row is due whose cells are of another kind or whose id is not its own.
    """
    shards = shards_by_split(path, _SUFFIX)
    splits: dict[str, list[ShardFile]] = {}
    for file_split, its_shards in shards.items():
        for shard in its_shards:
            for each in _splits_in(shard.path, max_group_bytes) or {file_split}:
                splits.setdefault(each, []).append(shard)
    if split not in splits:
        raise SplitUnknown(place=path, split=split, known=splits)
    return _records(splits[split], split, language)


def _splits_in(file: Path, max_group_bytes: int) -> set[str]:
    """Returns the splits that the rows of a file name; checks the file on the way."""
    try:
        with pq.ParquetFile(file) as parquet:
            names = parquet.schema_arrow.names
            _check_columns(file, parquet.schema_arrow)
            _check_groups(file, parquet.metadata, max_group_bytes)
            if _SPLIT not in names:
                return set()
            column = parquet.read(columns=[_SPLIT]).column(0).unique().to_pylist()
    except _BROKEN as error:
        raise _no_parquet(file, error) from error
    if not all(isinstance(each, str) for each in column):
        raise CorpusMalformed(f"{file} has rows whose {_SPLIT} is no text; fill the column")
    return set(column)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    there = ", ".join(schema.names)
    if _IMAGE not in schema.names or not set(_CAPTIONS) & set(schema.names):
        raise CorpusMalformed(
            f"{file} needs the columns {_IMAGE} and {' or '.join(_CAPTIONS)}; it has: {there}"
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
            raise CorpusMalformed(
                f"{file}: row group {group} has {group_bytes:,} bytes, the limit is "
                f"{max_group_bytes:,}; write the file again with fewer rows a group"
            )


def _records(shards: list[ShardFile], split: str, language: str) -> Iterator[Record]:
    seen: set[str] = set()
    for shard in shards:
        for number, source, row in _rows(shard.path, split):
            place = str(source)
            record_id = _record_id(row, place, default=f"{shard.name}/{number}")
            if record_id in seen:
                raise CorpusMalformed(
                    f"{place} is a second {record_id!r}; give it an id of its own"
                )
            seen.add(record_id)
            its_language = row.get(_LANGUAGE)
            texts = _texts(row)
            if not all(isinstance(each, str) for each in [*texts, its_language or ""]):
                raise CorpusMalformed(
                    f"{place} has a caption or {_LANGUAGE} that is no text; correct it"
                )
            captions = numbered_captions(record_id, texts, its_language or language)
            yield Record(record_id, captions, split, record_id, source)


def _rows(file: Path, split: str) -> Iterator[tuple[int, ParquetImage, dict[str, Any]]]:
    """Yields the number, picture, and other cells by column, of each row of the split."""
    try:
        with pq.ParquetFile(file) as parquet:
            wanted = {*_CAPTIONS, _ID, _SPLIT, _LANGUAGE}
            columns = [name for name in parquet.schema_arrow.names if name in wanted]
            first_row = 0
            for group in range(parquet.num_row_groups):
                rows = parquet.read_row_group(group, columns=columns).to_pylist()
                for number, row in enumerate(rows):
                    if row.get(_SPLIT, split) == split:
                        place = f"{file}: row {first_row + number}"
                        yield first_row + number, ParquetImage(file, group, number, place), row
                first_row += len(rows)
    except _BROKEN as error:
        raise _no_parquet(file, error) from error


def _record_id(row: dict[str, Any], place: str, default: str) -> str:
    if _ID not in row:
        return default
    if not isinstance(row[_ID], (str, int)):
        raise CorpusMalformed(f"{place} has the {_ID} {row[_ID]!r}; make it a text or a number")
    return str(row[_ID])


def _texts(row: dict[str, Any]) -> list[Any]:
    cell = next(row[name] for name in _CAPTIONS if name in row)
    return cell if isinstance(cell, list) else [] if cell is None else [cell]


@lru_cache(maxsize=2)
def _image_cells(file: Path, group: int, _mtime_ns: int, _size_bytes: int) -> pa.ChunkedArray:
    """Returns a group's pictures; time and size are there to tell a file from its successor."""
    with pq.ParquetFile(file) as parquet:
        return parquet.read_row_group(group, columns=[_IMAGE]).column(0)


def _no_parquet(file: Path, error: Exception) -> CorpusMalformed:
    return CorpusMalformed(f"{file} is no whole parquet file ({error}); fetch it again")
