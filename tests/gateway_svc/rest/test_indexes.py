"""gateway_svc.rest.indexes: the state of an index over plain HTTP."""

from __future__ import annotations

import pytest

from tandem.v1 import search_service_pb2 as pb
from tests.support.gateway_svc.running import gateway

pytestmark = pytest.mark.usefixtures("each_shape")


async def test_an_index_is_described() -> None:
    async with gateway() as served:
        response = await served.client.get("/v1/indexes/scenes")

    [sent] = served.service.requests
    body = response.json()
    assert response.status_code == 200
    assert sent == pb.DescribeIndexRequest(index_id="scenes")
    assert body["shards"][0]["parts"][1]["index_type"] == "IVF64,Flat"
    assert body["live_recalls"] == [
        {
            "query_modality": "MODALITY_TEXT",
            "target_modality": "MODALITY_IMAGE",
            "recall": 0.75,
            "search_count": body["live_recalls"][0]["search_count"],
        }
    ]
    assert int(body["live_recalls"][0]["search_count"]) == 40
    assert body["degradations"] == ["DEGRADATION_SHARDS_MISSING"]


@pytest.mark.parametrize(("flag", "is_required"), [("true", True), ("false", False)])
async def test_full_coverage_can_be_requested(flag: str, *, is_required: bool) -> None:
    async with gateway() as served:
        await served.client.get("/v1/indexes/scenes", params={"full_coverage_required": flag})

    [sent] = served.service.requests
    assert sent.full_coverage_required is is_required


async def test_indexes_are_listed_page_by_page() -> None:
    async with gateway() as served:
        first = (await served.client.get("/v1/indexes", params={"page_size": 1})).json()
        turn = {"page_token": first["next_page_token"], "full_coverage_required": "true"}
        second = (await served.client.get("/v1/indexes", params=turn)).json()

    assert served.service.requests == [
        pb.ListIndexesRequest(page_size=1),
        pb.ListIndexesRequest(page_token="pets", full_coverage_required=True),
    ]
    [listed] = first["indexes"]
    assert (listed["index_id"], int(listed["text_count"]), int(listed["image_count"])) == (
        "pets",
        3,
        1,
    )
    assert not second["next_page_token"]
    [missing] = second["missing_shards"]
    assert missing["shard_number"] == 1
