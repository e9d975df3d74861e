"""The clients that OpenAI and Cohere publish work with the gateway as with their own servers.

`make test-official` brings them, and .ci/run runs it; `make test` leaves them
out. What they send is in test_embeddings and test_rerank, too.
"""

from __future__ import annotations

import asyncio
import base64
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.support.gateway_svc.running import gateway
from tests.support.pictures.pictures import encoded, plain

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

    assert [each.index for each in sorted_.results] == [1, 2]
    assert sorted_.results[0].relevance_score == pytest.approx(0.01)


@pytest.fixture(scope="module")
def bundled_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bundled model, served over HTTP by one process, as `tandem up` does."""
    command = [sys.executable, "-m", "tandem.cli", "up", "--one-process", "--free-ports"]
    with subprocess.Popen(
        command, cwd=tmp_path_factory.mktemp("up"), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = (re.search(r"http://localhost:\d+", line) for line in process.stdout)
        try:
            yield next(each[0] for each in found if each)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


@pytest.mark.parametrize("version", ["Client", "ClientV2"])
def test_cohere_reranks_long_passages_and_figures(bundled_url: str, version: str) -> None:
    """What is blank or empty is below what answers, and what is long is cut."""
    cohere: Any = pytest.importorskip("cohere")
    httpx: Any = pytest.importorskip("httpx")
    blank = [encoded(plain(colour=colour), "PNG") for colour in ((0, 0, 0), (255, 255, 255))]
    figures = [f"data:image/png;base64,{base64.b64encode(each).decode()}" for each in blank]
    query = "two dogs run in the snow"
    documents = [*figures, "", query, "The harbour was rebuilt. " * 60, "two dogs run in snow"]
    with httpx.Client(timeout=120.0) as connections:
        client = getattr(cohere, version)(
            api_key="token", base_url=bundled_url, httpx_client=connections
        )
        results = client.rerank(model="any", query=query, documents=documents).results

    scores = [each.relevance_score for each in results]
    assert [each.index for each in results][::5] == [3, 2]
    assert results[1].index == 5
    assert scores == sorted(scores, reverse=True)
    assert [each.index for each in results if getattr(each, "truncated", False)] == [4]


def test_openai_embeds_with_the_bundled_model(bundled_url: str) -> None:
    """Its default, base64, is what floats are, and a model is found by its name in the list."""
    openai: Any = pytest.importorskip("openai")
    client = openai.OpenAI(api_key="token", base_url=f"{bundled_url}/v1", timeout=120.0)
    given = ["a red cup", "two dogs"]
    plain = client.embeddings.create(model="any", input=given, encoding_format="float")
    default = client.embeddings.create(model="any", input=given)
    [model] = client.models.list().data
    retrieved = client.models.retrieve(model.id)
    client.close()

    for one, other in zip(plain.data, default.data, strict=True):
        assert one.embedding == pytest.approx(list(other.embedding), abs=1e-6)
    assert retrieved == model


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
