"""gateway_svc.rest.embeddings: what clients of OpenAI send."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from tests.support.gateway_svc.running import gateway
from tests.support.grid import sampled

pytestmark = pytest.mark.usefixtures("each_shape")

PICTURE = b"\x89PNG picture"
DATA = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"


async def test_texts_and_pictures_are_embedded_in_their_order() -> None:
    async with gateway() as served:
        numbers = await served.client.post(
            "/v1/embeddings", json={"model": "any", "input": ["a dog", DATA, {"image": DATA}]}
        )
        encoded = await served.client.post(
            "/v1/embeddings", json={"input": "a dog", "encoding_format": "base64"}
        )

    data = numbers.json()["data"]
    assert [each["embedding"] for each in data] == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert numbers.json()["usage"] == {"prompt_tokens": 21, "total_tokens": 21}
    assert numbers.json()["model"] == "f1"
    assert struct.unpack("<2f", base64.b64decode(encoded.json()["data"][0]["embedding"])) == (
        0,
        0.5,
    )
    assert [each.image for each in served.service.requests[0].contents[1:]] == [PICTURE] * 2


async def test_inputs_beyond_one_call_are_sent_in_several() -> None:
    async with gateway() as served:
        response = await served.client.post("/v1/embeddings", json={"input": ["x"] * 130})

    sizes = [len(each.contents) for each in served.service.requests]
    assert sizes == [64, 64, 2]
    assert [each["index"] for each in response.json()["data"]] == list(range(130))


@pytest.mark.parametrize(
    ("body", "told"),
    sampled(
        [
            ({}, "input is missing"),
            ({"input": "a", "messages": [{"content": "b"}]}, "input and messages are both set"),
            ({"input": "a", "encoding_format": ""}, "encoding_format is none of"),
            ({"input": []}, "input"),
            ({"input": [1, 2]}, "token ids"),
            ({"input": "a", "dimensions": 3}, "dimensions"),
            ({"input": "a", "colour": "red"}, "colour"),
            ({"input": {"image": "https://x.example/a.png"}}, "fetched"),
            ({"messages": {"content": "a"}}, "messages is not one message with one part"),
            ({"input": [{"type": "image_url", "text": "a"}]}, "input[0] has text, and its type is"),
        ],
        fault=lambda row: row[1],
    ),
)
async def test_invalid_inputs_are_refused_in_both_forms(body: dict[str, Any], told: str) -> None:
    async with gateway() as served:
        response = await served.client.post("/v1/embeddings", json=body)

    assert response.status_code == 400
    assert told in response.json()["detail"]
    assert response.json()["error"]["message"] == response.json()["detail"]
    assert response.json()["error"]["code"] == "REQUEST_MALFORMED"


async def test_an_input_that_is_refused_fails_the_call_with_its_place() -> None:
    async with gateway() as served:
        response = await served.client.post("/v1/embeddings", json={"input": ["yes", "no"]})

    assert (response.status_code, response.json()["reason"]) == (400, "TEXT_EMPTY")
    assert response.json()["detail"].startswith("input[1]: ")


async def test_a_chat_with_one_picture_is_embedded() -> None:
    part = {"type": "image_url", "image_url": {"url": DATA}}
    async with gateway() as served:
        response = await served.client.post(
            "/v1/embeddings", json={"messages": [{"role": "user", "content": [part]}]}
        )

    assert response.status_code == 200
    assert served.service.requests[0].contents[0].image == PICTURE
