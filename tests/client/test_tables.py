"""Items of data frames and of Arrow's tables: each value as an attribute."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tandem.client import table_items
from tandem.client.sendable import checked_item
from tandem.errors import RequestMalformed


class Frame:
    """Gives its rows as pandas does."""

    columns = ("sku", "text", "Größe", "new", "none", "list")

    def itertuples(self, index: bool, name: None) -> list[tuple[object, ...]]:
        """Yields two rows."""
        assert not index
        assert name is None
        return [
            (1.0, "a cup", np.float32(19.99), np.bool_(True), float("nan"), [1]),
            (2.0, "a jug", np.int64(3), np.bool_(False), None, ["x"]),
        ]


def test_rows_of_a_data_frame_are_items() -> None:
    first, second = table_items(Frame(), id_column="sku", text_column="text")

    assert (first.item_id, first.text) == ("1", "a cup")
    assert first.attributes == {"Grosse": np.float32(19.99), "new": True, "list": [1]}
    assert second.attributes == {"Grosse": 3, "new": False, "list": ["x"]}


def test_rows_of_an_arrow_table_are_pictures_or_texts(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"pixels")
    table = pa.table(
        {
            "id": ["a", "b", "c"],
            "picture": [str(tmp_path / "a.jpg"), None, str(tmp_path / "none.jpg")],
            "title": ["a cup", "a jug", "a pot"],
            "price": [Decimal("9.50"), None, None],
            "day": [date(2026, 1, 1), None, None],
        }
    )

    first, second, missing = table_items(
        table, id_column="id", image_column="picture", text_column="title"
    )

    assert (first.image, first.text) == (b"pixels", None)
    assert first.attributes == {"title": "a cup", "price": Decimal("9.50"), "day": date(2026, 1, 1)}
    assert (second.image, second.text, second.attributes) == (None, "a jug", {})
    with pytest.raises(RequestMalformed, match=r"the content is the path '.*none\.jpg', whose"):
        checked_item(missing)
