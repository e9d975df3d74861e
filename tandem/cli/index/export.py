"""`tandem export`: writes an index with its embeddings to a parquet file."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tandem.cli.options import ADDRESS, user_path
from tandem.cli.terminal.console import one_line, out
from tandem.cli.terminal.json_answer import answer, with_json
from tandem.cli.terminal.progress import LongWork
from tandem.client import Access, Client, KeptItem
from tandem.client.calls.refusal import Call, calling
from tandem.client.calls.retries import is_passing
from tandem.contract.filtering.attribute_wire import attributes_from_proto
from tandem.contract.limits import MAX_ITEM_ID_COUNT
from tandem.errors import AnswerTooLarge, TandemError
from tandem.installation import __version__
from tandem.platform.files.whole_file import write_whole
from tandem.v1.content_pb2 import Modality
from tandem.v1.content_service_pb2 import FetchItemsRequest, FetchItemsResponse
from tandem.v1.content_service_pb2_grpc import ContentServiceStub

_FORMAT: Final = "1"
_ITEM_COLUMNS: Final = ("id", "modality", "text", "image", "embedding")
_TYPES: Final = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    tuple: pa.list_(pa.string()),
}
_MODALITIES: Final = {Modality.MODALITY_TEXT: "text", Modality.MODALITY_IMAGE: "image"}
# Of a row group, which the writer holds, and readers skip or read as one.
_GROUP_BYTES: Final = 32 * 2**20
# An answer has 48 MiB of contents.
_CONTENTS_COUNT: Final = 64
_WAITS_SECONDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)


@with_json
def export(
    index_id: Annotated[str, typer.Argument(help="index id, for example scenes")],
    file: Annotated[Path, typer.Argument(help="parquet file to write, or to replace")],
    contents: Annotated[bool, "write texts and pictures too"] = False,
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Write an index to a parquet file: ids, embeddings, attributes.

    The file replaces one of its name when it is complete.
    """
    access = Access.from_environment()
    with Client(address, access=access) as client, calling(address, ContentServiceStub) as call:
        types, count = _attribute_types(
            client.list_items(index_id=index_id, attributes_included=True)
        )
        rows = _Rows(index_id, types, contents=contents)
        ids = (item.item_id for item in client.list_items(index_id=index_id))
        fetched = _fetched(call, index_id, ids, contents=contents)

        def write(path: Path) -> None:
            with LongWork(often_short=True) as work:
                for done in rows.written(path, fetched):
                    work.show(f"export {index_id}", done, count, unit="items")

        write_whole(user_path(str(file)), write)
    answer(
        {
            "index_id": index_id,
            "file": str(file),
            "item_count": rows.count,
            "model_fingerprint": rows.fingerprint,
        }
    )
    out.print(one_line(f"{rows.count:,} items of {index_id} are in {file}"))


class _Rows:
    """Writes items as rows of a file."""

    def __init__(self, index_id: str, types: Mapping[str, set[type]], *, contents: bool) -> None:
        """Takes the types that each attribute's values have."""
        self.count = 0
        self.fingerprint = ""
        self._index_id = index_id
        self._contents = contents
        self._attributes: dict[str, tuple[str, pa.DataType | None]] = {}
        """The column of each, and its type; None for JSON."""
        taken = set(_ITEM_COLUMNS)
        for name, kinds in sorted(types.items()):
            column = name
            # As SQL compares names.
            while column.lower() in taken:
                column = f"attribute_{column}"
            taken.add(column.lower())
            kind = float if kinds == {int, float} else next(iter(kinds))
            is_one = len(kinds) == 1 or kind is float
            self._attributes[name] = column, _TYPES[kind] if is_one else None

    def written(self, path: Path, answers: Iterator[FetchItemsResponse]) -> Iterator[int]:
        """Writes the file, and yields how many items were read.

        Raises ValueError if there are none, or if the index changed meanwhile so that they do not
        fit together.
        """
        if (first := next(answers, None)) is None:
            raise ValueError(f"{self._index_id} has no items")
        self.fingerprint = first.model_fingerprint
        schema = self._schema(len(first.embeddings[0].embedding.values) // 4)
        held: list[pa.RecordBatch] = []
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for each in chain([first], answers):
                held.append(self._batch(each, schema))
                if sum(batch.nbytes for batch in held) > _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held))
                    held.clear()
                self.count += len(each.items)
                yield self.count
            if held:
                writer.write_table(pa.Table.from_batches(held))

    def _schema(self, dimension: int) -> pa.Schema:
        fields: dict[str, Any] = {"id": pa.string(), "modality": pa.string()}
        if self._contents:
            fields |= {"text": pa.string(), "image": pa.binary()}
        fields["embedding"] = pa.list_(pa.float32(), dimension)
        named: dict[str, dict[str, str]] = {}
        for name, (column, kind) in self._attributes.items():
            fields[column] = kind or pa.string()
            named[column] = {"attribute": name, "type": str(kind or "json")}
        about = {
            "tandem.format": _FORMAT,
            "tandem.version": __version__,
            "tandem.index_id": self._index_id,
            "tandem.model_fingerprint": self.fingerprint,
            "tandem.attributes": json.dumps(named),
        }
        return pa.schema(list(fields.items()), metadata=about)

    def _batch(self, response: FetchItemsResponse, schema: pa.Schema) -> pa.RecordBatch:
        if response.model_fingerprint != self.fingerprint:
            raise self._changed("its model")
        values = np.frombuffer(b"".join(e.embedding.values for e in response.embeddings), "<f4")
        size = schema.field("embedding").type.list_size
        columns: dict[str, Any] = {
            "id": [item.item_id for item in response.items],
            "modality": [_MODALITIES[e.modality] for e in response.embeddings],
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), size),
        }
        for each in ("text", "image") if self._contents else ():
            columns[each] = [
                getattr(item.content, each) if item.content.WhichOneof("data") == each else None
                for item in response.items
            ]
        found = [attributes_from_proto(item.attributes) for item in response.items]
        if {name for each in found for name in each} - self._attributes.keys():
            raise self._changed("an attribute")
        for name, (column, kind) in self._attributes.items():
            held = [each.get(name) for each in found]
            if kind is None:
                held = [None if each is None else json.dumps(each) for each in held]
            try:
                columns[column] = pa.array(held, schema.field(column).type)
            except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
                raise self._changed(f"attribute {name}") from error
        return pa.RecordBatch.from_pydict(columns, schema)

    def _changed(self, what: str) -> ValueError:
        return ValueError(
            f"{self._index_id}: {what} changed while it was exported; export it again"
        )


def _attribute_types(items: Iterable[KeptItem]) -> tuple[Mapping[str, set[type]], int]:
    """Returns the types of each attribute's values, and the number of items."""
    found: defaultdict[str, set[type]] = defaultdict(set)
    count = 0
    for item in items:
        count += 1
        for name, value in item.attributes.items():
            found[name].add(type(value))
    return found, count


def _fetched(
    call: Call, index_id: str, item_ids: Iterator[str], *, contents: bool
) -> Iterator[FetchItemsResponse]:
    """Yields items with their embeddings, some at a time, without those that are gone."""
    count = _CONTENTS_COUNT if contents else MAX_ITEM_ID_COUNT
    waiting: list[str] = []
    while waiting := waiting or list(islice(item_ids, count)):
        request = FetchItemsRequest(
            index_id=index_id,
            item_ids=waiting[:count],
            content_excluded=not contents,
            embeddings_included=True,
        )
        try:
            response = _patiently(partial(call, "FetchItems", request))
        except AnswerTooLarge:
            if count == 1:
                raise
            count = max(1, count // 2)
            continue
        del waiting[:count]
        if len(response.embeddings) != len(response.items):
            raise ValueError("the server gives no embeddings; update it")
        if response.items:
            yield response


def _patiently(call: Callable[[], FetchItemsResponse]) -> FetchItemsResponse:
    """Returns the answer, for which it waits while a server is busy or restarts."""
    for seconds in _WAITS_SECONDS:
        try:
            return call()
        except TandemError as error:
            if not is_passing(error):
                raise
            time.sleep(seconds)
    return call()
