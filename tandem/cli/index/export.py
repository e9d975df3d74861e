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

_ITEM_COLUMNS: Final = ("id", "modality", "text", "image", "embedding")
_TYPES: Final = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    tuple: pa.list_(pa.string()),
}
# Of a row group, which the writer holds, and readers skip or read as one.
_GROUP_BYTES: Final = 32 * 2**20
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
        listed = client.list_items(index_id=index_id, attributes_included=True)
        types, count = _attribute_types(listed)
        rows = _Rows(index_id, types, contents=contents)
        ids = (item.item_id for item in client.list_items(index_id=index_id))

        def write(path: Path) -> None:
            with LongWork(often_short=True) as work:
                for done in rows.written(path, _fetched(call, index_id, ids, contents=contents)):
                    work.show(f"export {index_id}", done, count, unit="items")

        write_whole(user_path(str(file)), write)
    about = {"file": str(file), "item_count": rows.count, "model_fingerprint": rows.fingerprint}
    answer({"index_id": index_id, **about})
    out.print(one_line(f"{rows.count:,} items of {index_id} are in {file}"))


class _Rows:
    """Writes items as rows of a file."""

    def __init__(self, index_id: str, types: Mapping[str, set[type]], *, contents: bool) -> None:
        """Takes the types that each attribute's values have."""
        self.count, self.fingerprint = 0, ""
        self._index_id = index_id
        self._contents = {"text": pa.string(), "image": pa.binary()} if contents else {}
        self._attributes: dict[str, tuple[str, pa.DataType | None]] = {}
        """The column of each, and its type; None for JSON."""
        taken = set(_ITEM_COLUMNS)
        for name, kinds in sorted(types.items()):
            column = name
            while column.lower() in taken:  # As SQL compares names.
                column = f"attribute_{column}"
            taken.add(column.lower())
            [kind, *others] = [float] if kinds == {int, float} else kinds
            self._attributes[name] = column, None if others else _TYPES[kind]

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
                try:
                    held.append(self._batch(each, schema))
                except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError) as error:
                    raise ValueError(
                        f"{self._index_id} got another model, or another attribute or type of one, "
                        f"while it was exported ({error}); export it again"
                    ) from error
                if sum(batch.nbytes for batch in held) > _GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(held))
                    held.clear()
                self.count += len(each.items)
                yield self.count
            if held:
                writer.write_table(pa.Table.from_batches(held))

    def _schema(self, dimension: int) -> pa.Schema:
        fields = {"id": pa.string(), "modality": pa.string(), **self._contents}
        fields["embedding"] = pa.list_(pa.float32(), dimension)
        fields |= {column: kind or pa.string() for column, kind in self._attributes.values()}
        about = {
            "tandem.format": "1",
            "tandem.version": __version__,
            "tandem.index_id": self._index_id,
            "tandem.model_fingerprint": self.fingerprint,
        }
        return pa.schema(list(fields.items()), metadata=about)

    def _batch(self, response: FetchItemsResponse, schema: pa.Schema) -> pa.RecordBatch:
        if response.model_fingerprint != self.fingerprint:
            raise KeyError(response.model_fingerprint)
        values = np.frombuffer(b"".join(e.embedding.values for e in response.embeddings), "<f4")
        size = schema.field("embedding").type.list_size
        names = {Modality.MODALITY_TEXT: "text", Modality.MODALITY_IMAGE: "image"}
        columns: dict[str, Any] = {
            "id": [item.item_id for item in response.items],
            "modality": [names[each.modality] for each in response.embeddings],
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), size),
        }
        columns |= {
            column: [None] * len(response.items) for column, _ in self._attributes.values()
        } | {kind: [None] * len(response.items) for kind in self._contents}
        for row, item in enumerate(response.items):
            if (data := item.content.WhichOneof("data")) in self._contents:
                columns[data][row] = getattr(item.content, data)
            for name, value in attributes_from_proto(item.attributes).items():
                column, kind = self._attributes[name]
                columns[column][row] = json.dumps(value) if kind is None else value
        return pa.RecordBatch.from_pydict(columns, schema)


def _attribute_types(items: Iterable[KeptItem]) -> tuple[Mapping[str, set[type]], int]:
    """Returns the types of each attribute's values, and the number of items."""
    found: defaultdict[str, set[type]] = defaultdict(set)
    count = 0
    for count, item in enumerate(items, 1):  # noqa: B007 (the last is returned)
        for name, value in item.attributes.items():
            found[name].add(type(value))
    return found, count


def _fetched(
    call: Call, index_id: str, item_ids: Iterator[str], *, contents: bool
) -> Iterator[FetchItemsResponse]:
    """Yields items with their embeddings, some at a time, without those that are gone."""
    count = MAX_ITEM_ID_COUNT
    while waiting := list(islice(item_ids, count)):
        request = FetchItemsRequest(
            index_id=index_id,
            item_ids=waiting,
            content_excluded=not contents,
            embeddings_included=True,
        )
        try:
            response = _patiently(partial(call, "FetchItems", request))
        except AnswerTooLarge:
            if count == 1:
                raise
            count //= 2
            item_ids = chain(waiting, item_ids)
            continue
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
