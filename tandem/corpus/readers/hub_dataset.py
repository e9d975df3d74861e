"""Reads what Hugging Face's library `datasets` loads, where it is installed, as tables."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem.corpus.errors import CorpusError
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.record_stream import RecordStream
from tandem.corpus.readers.shards import ShardFile
from tandem.corpus.readers.splits import split_named
from tandem.corpus.readers.table import Reader, last_records
from tandem.corpus.readers.text_tables import Row, Table


class _LoadedTable(Table):
    def __init__(self, shard: ShardFile, loaded: Any, left_out: LeftOut) -> None:  # noqa: ANN401
        self.shard, self.loaded, self.left_out = shard, loaded, left_out
        self.columns, self.row_count = dict.fromkeys(loaded.column_names), len(loaded)

    def rows(self, image: str = "", only: Collection[str] | None = None) -> Iterator[Row]:
        names = [each for each in self.columns if only is None or each in only]
        for number, row in enumerate(self.loaded.select_columns(names)):
            if isinstance(cell := row.get(image), dict):
                row[image] = cell["path"] if cell["bytes"] is None else cell["bytes"]
            yield number, f"{self.shard.path}: row {number}", row


def read_dataset(
    name: Path,
    split: str,
    left_out: LeftOut | None = None,
    columns: Mapping[str, str] | None = None,
) -> RecordStream:
    """Returns a split's records of a dataset, by its name at the hub or its folder.

    Roles of columns are as in read_table. Raises CorpusError without the library, and what it
    raises; SplitUnknown.
    """
    try:
        # Imported here, because it is no dependency, and takes a second.
        import datasets  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise CorpusError(f"{name} is loaded with: pip install datasets") from error
    left_out = LeftOut() if left_out is None else left_out
    found = datasets.load_dataset(str(name))
    loaded = found[split_named(split, found, name, left_out)]
    for column, kind in loaded.features.items():
        if isinstance(kind, datasets.Image):
            loaded = loaded.cast_column(column, datasets.Image(decode=False))
    table = _LoadedTable(ShardFile(name, name.name), loaded, left_out)
    reader = Reader(table, None, columns or {}, split, "en")
    return RecordStream(last_records([reader]), name, left_out, table.row_count)
