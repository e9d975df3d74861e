"""The clients that OpenAI and Cohere publish work with the gateway as with their own servers.

`make test-official` brings them, and .ci/run runs it; `make test` leaves them
out. What they send is in test_embeddings and test_rerank, too.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.support.gateway_svc.running import gateway

T = TypeVar("T")

DATA = f"data:image/png;base64,{base64.b64encode(b'picture').decode()}"


async def aside(call: Callable[[], T]) -> T:
    """Runs a client that blocks."""
    return await asyncio.to_thread(call)


async def test_openai_embeds_texts_and_pictures() -> None:
    openai: Any = pytest.importorskip("openai")
    async with gateway() as served:
        client = openai.OpenAI(
            api_key="token", base_url=f"http://127.0.0.1:{served.port}/v1", max_retries=0
        )
        [model] = (await aside(client.models.list)).data
        one = await aside(lambda: client.models.retrieve(model.id))
        made = await aside(lambda: client.embeddings.create(model=model.id, input=["a dog", DATA]))
        with pytest.raises(openai.BadRequestError, match=r"input\[0\]: the text has no words"):
            await aside(lambda: client.embeddings.create(model="tandem", input="no"))
        client.close()

    assert [list(each.embedding) for each in made.data] == [[0, 0.5], [1, 0.5]]
    assert made.usage.total_tokens == 14
    assert one == model
    assert model.object == "model"
    assert {each["authorization"] for each in served.service.metadata} == {"Bearer token"}


@pytest.mark.parametrize("version", ["Client", "ClientV2"])
async def test_cohere_reranks_pictures(version: str) -> None:
    cohere: Any = pytest.importorskip("cohere")
    httpx: Any = pytest.importorskip("httpx")
    async with gateway() as served:
        with httpx.Client() as connections:
            client = getattr(cohere, version)(
                api_key="token",
                base_url=f"http://127.0.0.1:{served.port}",
                httpx_client=connections,
            )
            sorted_ = await aside(
                lambda: client.rerank(
                    model="tandem", query="a dog", documents=[DATA, DATA, "a text"], top_n=2
                )
            )

    assert [each.index for each in sorted_.results] == [1, 0]
    assert sorted_.results[0].relevance_score == pytest.approx(0.01)


async def test_openai_reads_floats_as_base64() -> None:
    openai: Any = pytest.importorskip("openai")
    async with gateway() as served:
        client = openai.OpenAI(
            api_key="token", base_url=f"http://127.0.0.1:{served.port}/v1", max_retries=0
        )
        made = [
            await aside(
                lambda options=options: client.embeddings.create(  # type: ignore[misc]
                    model="another", input=["a dog", "a cat"], user="someone", **options
                )
            )
            for options in ({}, {"encoding_format": "float"}, {"dimensions": 2})
        ]
        with pytest.raises(openai.BadRequestError, match="input has token ids; send texts"):
            await aside(lambda: client.embeddings.create(model="tandem", input=[[1, 2], [3]]))
        client.close()

    assert [[list(each.embedding) for each in one.data] for one in made] == [
        [[0, 0.5], [1, 0.5]]
    ] * 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"documents": [{"text": "a", "title": "b"}]}, "documents[0] needs exactly one of"),
    ],
)
async def test_cohere_tells_which_field_is_refused(options: dict[str, Any], told: str) -> None:
    cohere: Any = pytest.importorskip("cohere")
    httpx: Any = pytest.importorskip("httpx")
    async with gateway() as served:
        with httpx.Client() as connections:
            client = cohere.Client(
                api_key="token",
                base_url=f"http://127.0.0.1:{served.port}",
                httpx_client=connections,
            )
            with pytest.raises(cohere.BadRequestError) as caught:
                await aside(lambda: client.rerank(model="tandem", query="a dog", **options))

    assert told in caught.value.body["detail"]
