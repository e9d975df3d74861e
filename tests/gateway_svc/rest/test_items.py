"""gateway_svc.rest.items: stored items over plain HTTP."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from tandem.contract.search.answer_wire import item_error_to_proto
from tandem.errors import TextEmpty
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.attribute_pb2 import AttributeValue as Value
from tandem.v1.attribute_pb2 import TextList
from tandem.v1.content_pb2 import Content, RegionContent
from tests.support.gateway_svc.running import gateway
from tests.support.grid import sampled

pytestmark = pytest.mark.usefixtures("each_shape")

PICTURE = b"\x89PNG picture"


async def test_a_batch_is_stored_with_its_attributes() -> None:
    attributes = {"style": "noto", "count": 2, "share": 0.5, "new": True, "tags": ["a", "b"]}
    body = {
        "index_id": "scenes",
        "request_id": "mine",
        "items": [
            {"item_id": "a", "content": "a dog", "attributes": attributes},
            {"item_id": "b", "content": {"image": base64.b64encode(PICTURE).decode()}},
        ],
    }
    async with gateway() as served:
        response = await served.client.put("/v1/items", json=body)

    [sent] = served.service.requests
    assert response.status_code == 200
    assert [each["item_id"] for each in response.json()["results"]] == ["a", "b"]
    assert (sent.index_id, sent.request_id) == ("scenes", "mine")
    assert (sent.items[0].content.text, sent.items[1].content.image) == ("a dog", PICTURE)
    found = sent.items[0].attributes
    assert (found["style"].text, found["count"].integer, found["new"].flag) == ("noto", 2, True)
    assert list(found["tags"].texts.values) == ["a", "b"]


@pytest.mark.parametrize(
    ("method", "path", "name"), [("PUT", "/v1/items", "items"), ("PATCH", "/v1/items", "patches")]
)
async def test_a_lone_surrogate_refuses_its_item_alone(method: str, path: str, name: str) -> None:
    """Wherever it is; outside of the items it refuses the call."""
    odd: list[dict[str, Any]] = [
        {"item_id": "a\ud800"},
        {"attributes": {"style": "\udfff"}},
        {"attributes": {"\ud800": 1}},
        {"content": "a \ud83d dog"},
    ]
    items = [{"item_id": f"{n}", **each} for n, each in enumerate([*odd, {"attributes": {"n": 1}}])]
    if name == "items":
        items = [{"content": "a dog", **each} for each in items]
    else:
        del items[3]
    async with gateway() as served:
        client, headers = served.client, {"content-type": "application/json"}
        body = {"index_id": "i", name: items}
        answer = await client.request(method, path, content=json.dumps(body), headers=headers)
        whole = json.dumps({**body, "request_id": "\ud800"})
        refused = await client.request(method, path, content=whole, headers=headers)

    [sent] = served.service.requests
    assert [each.item_id for each in getattr(sent, name) if "\0" not in each.item_id] == ["4"]
    if name == "items":
        *bad, good = answer.json()["results"]
        assert good == {"item_id": "4"}
        assert [each["item_id"] for each in bad] == ["a?", "1", "2", "3"]
        assert all("lone surrogate after" in each["error"]["detail"] for each in bad)
    assert answer.status_code == (207 if name == "items" else 200), answer.text
    assert (refused.status_code, "lone surrogate" in refused.text) == (400, True)


VALUES = {
    "sku": Value(integer=2**53 + 1),
    "least": Value(integer=-(2**63)),
    "count": Value(integer=-3),
    "price": Value(real=19.99),
    "large": Value(real=1e20),
    "new": Value(flag=True),
    "name": Value(text='a "cup", ünique'),
    "tags": Value(texts=TextList(values=["a", "b"])),
    "none": Value(texts=TextList()),
}
REGIONS = RegionContent(
    features=b"\0\0\x80?", boxes=b"\0" * 16, region_count=1, feature_width=1, image_width=1
)


@pytest.mark.parametrize("content", [Content(text="data:image/png;"), Content(regions=REGIONS)])
async def test_what_an_answer_has_of_an_item_is_stored_as_it_was(content: Content) -> None:
    """Plain values, and a browser, whose numbers are doubles, changes none of them."""

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        found = pb.RankedItem(item_id="a", content=content, attributes=VALUES)
        return pb.SearchItemsResponse(items=[found])

    async with gateway(search) as served:
        found = await served.client.post("/v1/search", json={"query": "x", "index_id": "i"})
        [item] = json.loads(found.text, parse_int=lambda digits: int(float(digits)))["items"]
        item = {name: item[name] for name in ("item_id", "content", "attributes")}
        stored = await served.client.put("/v1/items", json={"index_id": "i", "items": [item]})

    assert stored.status_code == 200, stored.text
    assert item["attributes"]["count"] == -3
    assert item["attributes"]["price"] == 19.99
    assert item["attributes"]["tags"] == ["a", "b"]
    [sent] = served.service.requests[-1].items
    assert sent.content == content
    assert dict(sent.attributes) == VALUES


async def test_an_odd_attribute_is_left_for_the_orchestrator_to_refuse() -> None:
    odd = [None, [1, 2], ["a", None], {"a": 1}, 2**64, [["a"]], {}, {"integer": "x"}]
    items: list[Any] = [
        {"item_id": str(n), "content": "x", "attributes": {"n": each}} for n, each in enumerate(odd)
    ]
    items.append({"item_id": "none", "content": "x", "attributes": None})
    body = json.dumps({"index_id": "i", "items": items})
    async with gateway() as served:
        headers = {"content-type": "application/json"}
        response = await served.client.put("/v1/items", content=body, headers=headers)

    assert response.status_code == 200, response.text
    sent = served.service.requests[-1].items
    assert [each.attributes["n"].WhichOneof("value") for each in sent[:-1]] == [None] * len(odd)
    assert not sent[-1].attributes


async def test_a_refused_item_is_named_next_to_stored_ones() -> None:
    async def half(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
        error = item_error_to_proto(TextEmpty())
        return pb.IngestItemsResponse(
            results=[pb.IngestResult(item_id="a"), pb.IngestResult(item_id="b", error=error)],
            consistency_token="token",
        )

    items = [{"item_id": each, "content": "x"} for each in "ab"]
    async with gateway(ingest=half) as served:
        response = await served.client.put("/v1/items", json={"index_id": "i", "items": items})

    first, second = response.json()["results"]
    assert response.status_code == 207
    assert first == {"item_id": "a"}
    assert (second["error"]["reason"], second["error"]["status"]) == ("TEXT_EMPTY", 400)
    assert response.json()["consistency_token"] == "token"


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (["a"], "items[0]"),
        ([{"item_id": "a"}], "items[0]"),
        ([{"item_id": 3, "content": "x"}], "items[0].item_id"),
        ([{"item_id": "a", "content": {"image": "https://x.example/a.png"}}], "fetched"),
        ([{"item_id": "a", "content": "x", "attributes": []}], "attributes"),
        ([{"item_id": "a", "content": {"regions": {"region_count": "x"}}}], "region_count"),
        ([{"item_id": "a", "content": "x", "colour": "red"}], "items[0]"),
    ],
)
async def test_invalid_items_are_refused_by_their_place(items: Any, told: str) -> None:
    """And keep no other from being stored."""
    good = {"item_id": "good", "content": "x"}
    async with gateway() as served:
        body = {"index_id": "i", "items": [*items, good]}
        response = await served.client.put("/v1/items", json=body)
        no_list = await served.client.put("/v1/items", json={"index_id": "i", "items": None})

    assert response.status_code == 207
    bad, stored = response.json()["results"]
    assert told in bad["error"]["detail"]
    assert stored == {"item_id": "good"}
    assert "items is not a list" in no_list.json()["detail"]


async def test_an_item_is_returned_by_its_id_and_a_missing_one_is_404() -> None:
    async with gateway() as served:
        found = await served.client.get("/v1/items/a%2Fb%20c?index_id=scenes")
        missing = await served.client.get("/v1/items/no?index_id=scenes")

    assert found.json()["item_id"] == "a/b c"
    assert found.json()["content"] == {"text": "a/b c"}
    assert (missing.status_code, missing.json()["reason"]) == (404, "ITEM_NOT_FOUND")


@pytest.mark.parametrize(
    "item_id",
    sampled(
        [
            *(
                "2024/07/IMG 1.jpg",
                "a%20b",
                "what?#x",
                "c++",
                "a/../b",
                "..",
                "end/",
                "a//b",
            ),
            *(
                "Zoe\u0308/Zoë",
                "猫/写真",
                "🐱",
                "a;b=c&d",
                'q"uote',
                "back\\slash",
                " lead",
                "a\nb",
                "a\n",
            ),
            "items:remove",
        ],
        fault=lambda item_id: ".." in item_id,
    ),
)
async def test_any_id_is_a_path_with_its_letters_percent_encoded(item_id: str) -> None:
    path = f"/v1/items/{quote(item_id, safe='')}?index_id=scenes"
    request = f"{{}} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with gateway() as served:
        found = await served.answer_to(request.format("GET").encode())
        removed = await served.answer_to(request.format("DELETE").encode())

    assert json.loads(found.partition(b"\r\n\r\n")[2])["item_id"] == item_id
    assert json.loads(removed.partition(b"\r\n\r\n")[2])["removed_count"] == 1
    assert [list(each.item_ids) for each in served.service.requests] == [[item_id]] * 2


async def test_ids_are_listed_page_by_page() -> None:
    async with gateway() as served:
        first = await served.client.get("/v1/items?index_id=scenes&page_size=2")
        token = first.json()["next_page_token"]
        last = await served.client.get(f"/v1/items?index_id=scenes&page_token={token}")
        refused = await served.client.get("/v1/items?index_id=scenes&page_size=many")

    assert first.json() == {"item_ids": ["a", "b"], "next_page_token": "b", "items": []}
    assert last.json() == {"item_ids": ["c"], "next_page_token": "", "items": []}
    assert served.service.requests[0].page_size == 2
    assert refused.status_code == 400


async def test_items_are_removed_one_by_one_or_together() -> None:
    async with gateway() as served:
        one = await served.client.delete("/v1/items/a?index_id=scenes&request_id=mine")
        several = await served.client.post(
            "/v1/items:remove", json={"index_id": "scenes", "item_ids": ["a", "b"]}
        )

    assert (one.json()["removed_count"], several.json()["removed_count"]) == (1, 2)
    assert served.service.requests[0].request_id == "mine"


@pytest.mark.parametrize("method", ["POST"])
async def test_another_method_gets_the_allowed_ones(method: str) -> None:
    async with gateway() as served:
        response = await served.client.request(method, "/v1/items")

    assert response.status_code == 405
    assert response.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
