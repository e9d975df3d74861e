"""gateway_svc.rest.items: stored items without their contents, over plain HTTP."""

from __future__ import annotations

import httpx2

from tandem.client import Client, Item
from tandem.client.testing import FakeServer
from tests.support.gateway_svc.running import gateway_before


async def test_items_are_changed_listed_and_removed_without_contents() -> None:
    """null removes an attribute; a patch that is none keeps no other from being applied."""
    odd = {"item_id": "c", "attributes": [], "colour": 3}
    with FakeServer() as fake, Client(fake.address) as client:
        items = [Item(each, text=each, attributes={"n": 1, "old": True}) for each in "abc"]
        list(client.ingest(items, index_id="i"))
        async with (
            gateway_before(fake.address) as port,
            httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
        ):
            patches = [{"item_id": "a", "attributes": {"n": 2.5, "old": None, "tags": ["x"]}}, odd]
            changed = await http.patch("/v1/items", json={"index_id": "i", "patches": patches})
            selection = {"selection": {"filter": "n = 1"}, "patches": [{"attributes": {"n": 2}}]}
            dry = {"index_id": "i", "dry_run": True, **selection}
            shown = await http.patch("/v1/items", json=dry)
            url = "/v1/items?index_id=i&filter=n+>+2&attributes_included=true"
            listed = await http.get(url)
            removed = await http.delete("/v1/items?index_id=i&id_glob=[b]&dry_run=true")
            await http.delete("/v1/items?index_id=i&id_prefix=a")
            refused = await http.delete("/v1/items?index_id=i")
        left = [each.item_id for each in client.list_items(index_id="i")]

    assert changed.status_code == 207
    [failure] = changed.json()["failures"]
    assert (changed.json()["changed_count"], failure["item_id"]) == (1, "c")
    assert "patches[1].attributes" in failure["error"]["detail"]
    assert shown.json() | {"consistency_token": ""} == {
        "changed_count": 2,
        "failures": [],
        "consistency_token": "",
        "item_ids": ["b", "c"],
        "next_page_token": "",
    }
    assert listed.json()["items"] == [{"item_id": "a", "attributes": {"n": 2.5, "tags": ["x"]}}]
    assert removed.json()["removed_count"] == 0
    assert (refused.status_code, left) == (400, ["b", "c"])
