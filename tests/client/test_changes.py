"""What `Client.change` makes of what callers give."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest

from tandem.client import Client, Item, ItemPatch
from tandem.client.testing import FakeServer


def test_one_bad_patch_is_a_failure_and_all_others_are_made() -> None:
    """Values may be those of tables; None removes one; what is no patch has no id."""
    values = {"a": np.int64(3), "b": decimal.Decimal("19.99"), "c": datetime.date(2026, 1, 1)}
    bad: list[Any] = [("x", {"a": {}}), ("x", {"a b": 1}), 3, ("x",), ("", {"a": 1}), None]
    with FakeServer() as fake, Client(fake.address) as client:
        items = [Item(f"{n}", text="a cup", attributes={"old": 1}) for n in range(1_500)]
        list(client.ingest(items, index_id="i", batch_item_count=64))

        patches = [(f"{n}", {**values, "old": None}) for n in range(1_500)]
        changes = client.change([*patches[:7], *bad, *patches[7:]], index_id="i")
        [kept] = client.fetch_items(["1400"], index_id="i")

    assert changes.changed_count == 1_500
    assert [each.item_id for each in changes.failures] == ["x", "x", "", "x", "", ""]
    assert kept.attributes == {"a": 3, "b": 19.99, "c": "2026-01-01"}


def test_a_misspelt_selection_selects_nothing() -> None:
    """Or more would be removed than was meant."""
    with FakeServer() as fake, Client(fake.address) as client:
        list(client.ingest([("a", "a cup")], index_id="i"))
        with pytest.raises(TypeError, match="wher"):
            client.remove_selected(index_id="i", id_prefix="a", wher="n = 1")  # type: ignore[call-arg]
        assert client.change([ItemPatch("b", copied_from_item_id="a")], index_id="i").failures == ()
        assert [each.item_id for each in client.list_items(index_id="i")] == ["a", "b"]
