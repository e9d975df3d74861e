"""What `Client.change` makes of what callers give."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest

from tandem.chassis.capacity.message_scanner import MessageScanner
from tandem.client import Client, Item, ItemPatch
from tandem.client.changes import PatchBatches
from tandem.client.testing import FakeServer
from tandem.contract.limits import MAX_PATCH_COUNT
from tandem.contract.methods import request_limit
from tandem.contract.search.item_changes_wire import CHANGE_WIRE
from tandem.v1 import search_service_pb2 as pb


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


@pytest.mark.parametrize(
    ("count", "attributes"),
    [
        (600, dict.fromkeys("ab", ["w" * 1_000] * 64)),  # 128 kB each
        (1_100, {f"{number}": ["a", "b", "c"] for number in range(64)}),  # 450 fields each
        (1_100, {f"{number}": None for number in range(64)}),
        (2_500, {"price": 3}),
    ],
)
def test_each_batch_of_patches_is_a_message_that_a_server_reads(
    count: int, attributes: dict[str, Any]
) -> None:
    """Few large ones or many small ones: by their bytes, fields and number."""
    method = "SearchService/ChangeItems"
    limit = request_limit(f"/tandem.v1.{method}")
    scanner = MessageScanner(method, pb.ChangeItemsRequest.DESCRIPTOR, limit)  # type: ignore[arg-type]

    batches = list(PatchBatches(((f"{n}", attributes) for n in range(count)), "i", "ours"))

    for each in batches:
        scanner.check(CHANGE_WIRE.to_proto(each).SerializeToString())
    sent = [patch.item_id for each in batches for patch in each.patches]
    assert sent == [f"{n}" for n in range(count)]
    assert [each.request_id for each in batches] == [f"ours/{n}" for n in range(len(batches))]
    if "price" in attributes:
        assert [len(each.patches) for each in batches] == [MAX_PATCH_COUNT, MAX_PATCH_COUNT, 500]


def test_a_misspelt_selection_selects_nothing() -> None:
    """Or more would be removed than was meant."""
    with FakeServer() as fake, Client(fake.address) as client:
        list(client.ingest([("a", "a cup")], index_id="i"))
        with pytest.raises(TypeError, match="wher"):
            client.remove_selected(index_id="i", id_prefix="a", wher="n = 1")  # type: ignore[call-arg]
        assert client.change([ItemPatch("b", copied_from_item_id="a")], index_id="i").failures == ()
        assert [each.item_id for each in client.list_items(index_id="i")] == ["a", "b"]
