"""Makes items of the rows of data frames, Arrow's tables and dictionaries."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tandem.client.item import Item
from tandem.contract.filtering.attributes import AttributeValue, value_fault
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
    attribute, unless its value is missing. A value that no attribute has is left out, with a
    warning that names its column.
    """
    for row in _rows(table):
        item_id, image = plain_value(row[id_column]), row.get(image_column)
        # pandas makes reals of whole numbers where one is missing.
        if isinstance(item_id, float) and item_id.is_integer():
            item_id = int(item_id)
        if isinstance(image, (str, Path)):
            image = Path(image).read_bytes()
        is_image = isinstance(image, bytes)
        content = None if is_image else plain_value(row.get(text_column))
        used = (id_column, image_column, None if is_image else text_column)
        cells = {name: cell for name, cell in row.items() if name not in used}
        yield Item(
            "" if item_id is None else str(item_id),
            text=None if content is None else str(content),
            image=image if is_image else None,
            attributes=_attributes(cells),
        )


def _attributes(cells: Mapping[Any, object]) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    for column, cell in cells.items():
        name = attribute_name(str(column))
        try:
            value = plain_value(cell)
            fault = None if value is None else value_fault(name, value)
        except TypeError as error:
            value, fault = None, str(error)
        if not name or name in attributes:
            fault = "its letters are none of an attribute's name, or another has them; rename it"
        if fault is not None:
            # One warning for each column and reason.
            why = fault.partition(";")[0]
            warnings.warn(f"column {column!r} is left out of some rows: {why}", stacklevel=3)
        elif value is not None:
            attributes[name] = value
    return attributes


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
