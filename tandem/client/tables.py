"""Makes items of the rows of data frames, Arrow's tables and dictionaries."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tandem.client.item import Item
from tandem.contract.filtering.plain_values import attribute_name, plain_value

_BATCH_ROW_COUNT = 1_000


def table_items(
    table: Any,  # noqa: ANN401  of pandas, Polars or Arrow, none of which is needed
    *,
    id_column: str,
    text_column: str | None = None,
    image_column: str | None = None,
) -> Iterator[Item]:
    """Yields an item for each row of a data frame, an Arrow table or an iterable of dictionaries.

    It is the image, bytes or the path of a file, or without one the text. Each other column is an
    attribute, unless its value is missing; leave out columns of values that no attribute has, for
    which an item is refused, as is one whose file cannot be read.
    """
    for row in _rows(table):
        cells = {name: cell for name, cell in row.items() if not _is_missing(cell)}
        item_id, image = plain_value(cells.pop(id_column, "")), cells.pop(image_column, None)
        # pandas makes reals of whole numbers where one is missing.
        if isinstance(item_id, float) and item_id.is_integer():
            item_id = int(item_id)
        if isinstance(image, (str, Path)):
            image = Path(image)
            with suppress(OSError):  # A path is refused alone, when the item is sent.
                image = image.read_bytes()
        text = None if image is not None else cells.pop(text_column, None)
        named = {attribute_name(str(name)): cell for name, cell in cells.items()}
        yield Item(str(item_id), text=text, image=image, attributes=named)


def _is_missing(cell: object) -> bool:
    try:
        return plain_value(cell) is None
    except TypeError:  # A picture, or what is refused by name when it is sent.
        return False


def _rows(table: Any) -> Iterable[Mapping[Any, Any]]:  # noqa: ANN401
    if hasattr(table, "to_batches"):
        batches = table.to_batches(max_chunksize=_BATCH_ROW_COUNT)
        return (row for batch in batches for row in batch.to_pylist())
    if hasattr(table, "iter_rows"):
        return table.iter_rows(named=True)  # type: ignore[no-any-return]
    if hasattr(table, "itertuples"):
        rows = table.itertuples(index=False, name=None)
        return (dict(zip(table.columns, row, strict=True)) for row in rows)
    return table  # type: ignore[no-any-return]
