"""gateway_svc.openapi: the description says what is served, and a page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway_svc.upstream import METHODS
from tests.support.gateway_svc.running import gateway

PATHS = {
    "/v1/search": {"post"},
    "/v1/items": {"put", "get", "patch", "delete"},
    "/v1/items:remove": {"post"},
    "/v1/items/{item_id}": {"get", "delete"},
    "/v1/indexes": {"get"},
    "/v1/indexes/{index_id}": {"get"},
    "/v1/models": {"get"},
    "/v1/models/{model_id}": {"get"},
    "/v1/rerank": {"post"},
    "/v2/rerank": {"post"},
    "/rerank": {"post"},
    "/v1/embeddings": {"post"},
}


def references(value: Any) -> Iterator[str]:
    """Yields every reference in a document."""
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


async def test_every_path_is_described_and_every_reference_leads_somewhere() -> None:
    """Methods of the contract too, so that a later one cannot be forgotten."""
    async with gateway() as served:
        document = (await served.client.get("/openapi.json")).json()

    expected = PATHS | {path: {"post"} for path in METHODS}
    operations = [each for item in document["paths"].values() for each in item.values()]
    schemas = document["components"]["schemas"]
    assert document["openapi"] == "3.1.0"
    assert {path: set(item) for path, item in document["paths"].items()} == expected
    assert len({each["operationId"] for each in operations}) == len(operations)
    assert all(each["summary"].endswith(".") for each in operations)
    found = {each.rpartition("/")[2] for each in references(document)}
    assert found
    assert found <= schemas.keys()
    assert schemas["SearchItemsRequest"]["properties"]["retrieve_k"]["type"] == "integer"


async def test_the_answer_to_an_unknown_content_type_is_described() -> None:
    async with gateway() as served:
        document = (await served.client.get("/openapi.json")).json()
        for path in METHODS:
            response = await served.client.post(path, content=b"{}")
            described = document["paths"][path]["post"]["responses"]["415"]["content"]

            assert response.status_code == 415
            assert response.headers["content-type"] == "application/problem+json"
            assert "application/problem+json" in described


async def test_a_page_shows_the_description() -> None:
    async with gateway() as served:
        page = await served.client.get("/docs/")
        parts = [await served.client.get(f"/docs/{name}") for name in ("page.js", "page.css")]
        outside = await served.client.get("/docs/../settings.py")

    assert page.status_code == 200
    assert "/openapi.json" in page.text
    assert [part.status_code for part in parts] == [200, 200]
    assert outside.status_code == 404
