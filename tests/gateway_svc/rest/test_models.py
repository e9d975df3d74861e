"""gateway_svc.rest.models: the list of models that OpenAI's clients ask for."""

from __future__ import annotations

import pytest

from tests.support.gateway_svc.running import gateway

pytestmark = pytest.mark.usefixtures("each_shape")


async def test_the_served_model_is_listed_as_embeddings_name_it() -> None:
    async with gateway() as served:
        listed = (await served.client.get("/v1/models")).json()
        model = (await served.client.post("/tandem.v1.ModelService/DescribeModel", json={})).json()

    [one] = listed["data"]
    assert (listed["object"], one["object"], one["owned_by"]) == ("list", "model", "tandem")
    assert one["id"] == model["model"]["fingerprint"] != ""


async def test_the_listed_model_is_returned_by_its_id_and_no_other_is() -> None:
    async with gateway() as served:
        [listed] = (await served.client.get("/v1/models")).json()["data"]
        found = await served.client.get(f"/v1/models/{listed['id']}")
        others = [
            await served.client.get(f"/v1/models/{name}")
            for name in ("BAAI/bge-m3", "BAAI%2Fbge-m3", "tandem")
        ]

    assert (found.status_code, found.json()) == (200, listed)
    assert [each.status_code for each in others] == [404] * 3
    assert listed["id"] in others[0].json()["detail"]
