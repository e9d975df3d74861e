"""A remote cross-encoder's API, right and sabotaged: what is read, and by which name it fails."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from tandem.errors import (
    DeadlineExceeded,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
    TandemError,
)
from tandem.local.reranking.remote.endpoint import RemoteEndpoint, RemoteScores, RemoteShape
from tandem.local.reranking.remote.http_client import RemoteHttpClient
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tandem.local.reranking.remote.shapes import Document
from tandem.stack.free_ports import free_ports
from tests.support.rerank_svc.remote_api import RemoteApi, Sabotage, probability, remote_api

SECONDS = 60.0
QUERY = Document(text="two dogs")
TEXTS = [Document(text=f"text {number}") for number in range(4)]
PICTURES = [Document(picture_uri=f"data:image/png;base64,{number}") for number in range(4)]


def endpoint(api: RemoteApi, **more: Any) -> RemoteEndpoint:
    return RemoteEndpoint(url=api.url, model="some-reranker", shape=RemoteShape(api.shape), **more)


@asynccontextmanager
async def scorer_of(endpoint: RemoteEndpoint, key: str = "") -> AsyncIterator[RemoteScorer]:
    client = RemoteHttpClient(endpoint, key=key)
    try:
        yield RemoteScorer(client, endpoint)
    finally:
        await client.close()


def logit(score: float) -> float:
    return math.log(score / (1 - score))


@pytest.mark.parametrize("shape", list(RemoteShape))
@pytest.mark.parametrize(
    ("query", "documents"),
    [(QUERY, TEXTS), (QUERY, PICTURES), (PICTURES[0], TEXTS)],
    ids=["texts", "pictures", "a picture's texts"],
)
async def test_each_shape_gives_the_logits_of_its_probabilities(
    shape: RemoteShape, query: Document, documents: list[Document]
) -> None:
    """In the order of the documents, whatever the order of the results."""
    with remote_api(Sabotage.SORTED, shape.value) as api:
        async with scorer_of(endpoint(api)) as scorer:
            logits = await scorer.score(query, documents, SECONDS)

    said = query.text or query.picture_uri
    expected = [logit(probability(said, each.text or each.picture_uri)) for each in documents]
    assert logits == pytest.approx(expected)
    assert api.requests[0]["model"] == "some-reranker"


async def test_pictures_travel_as_each_api_documents_them() -> None:
    """vLLM's content parts, of which each is a document; Jina's images."""
    bodies = {}
    for shape in RemoteShape:
        with remote_api(shape=shape.value) as api:
            async with scorer_of(endpoint(api)) as scorer:
                await scorer.score(QUERY, PICTURES[:2], SECONDS)
        bodies[shape] = api.requests[0]

    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{number}"}}
        for number in range(2)
    ]
    assert bodies[RemoteShape.VLLM_RERANK]["documents"] == {"content": parts}
    assert bodies[RemoteShape.VLLM_SCORE]["text_2"] == {"content": parts}
    assert bodies[RemoteShape.JINA]["documents"] == [
        {"image": "data:image/png;base64,0"},
        {"image": "data:image/png;base64,1"},
    ]


async def test_logits_are_used_unchanged() -> None:
    """Only where the endpoint says that its scores are logits."""
    with remote_api(Sabotage.LOGITS) as api:
        async with scorer_of(endpoint(api, scores=RemoteScores.LOGIT)) as scorer:
            assert await scorer.score(QUERY, TEXTS, SECONDS) == [-3.5] * 4


@pytest.mark.parametrize(
    ("sabotage", "kind", "says"),
    [
        (Sabotage.FEWER, ModelOutputInvalid, "3 results for 4 documents"),
        (Sabotage.TWICE, ModelOutputInvalid, "index 0 twice or out of range"),
        (Sabotage.NAN, ModelOutputInvalid, "a score of nan"),
        (Sabotage.WORDS, ModelOutputInvalid, "without a number 'relevance_score'"),
        (
            Sabotage.LOGITS,
            ModelOutputInvalid,
            "-3.5, which is not a probability; set RERANK_REMOTE",
        ),
        (Sabotage.GARBAGE, ModelOutputInvalid, "it is not JSON"),
        (Sabotage.ZIPPED, ModelOutputInvalid, "it is not JSON"),
        (Sabotage.LIST, ModelOutputInvalid, "without a list 'results'"),
        (Sabotage.DIGITS, ModelOutputInvalid, "a score of 401 digits"),
        (Sabotage.FAR, ModelOutputInvalid, "index 100000000000 twice or out of range"),
        (Sabotage.ENDLESS, ModelOutputInvalid, "over 4,194,304 bytes"),
        (Sabotage.CUT, ModelUnavailable, "some-reranker does not answer"),
        (Sabotage.REDIRECT, ModelUnavailable, "307; redirects are not followed"),
        (Sabotage.ERROR_500, ModelUnavailable, "it answered 500"),
        (Sabotage.REFUSED, ModelUnavailable, "401; check RERANK_REMOTE_KEY_FILE"),
        (Sabotage.BUSY, Overloaded, "answered 429"),
    ],
)
async def test_a_wrong_answer_has_a_name(
    sabotage: Sabotage, kind: type[TandemError], says: str
) -> None:
    """And what to do, where that is known; the next answer of the same client is right."""
    with remote_api(sabotage) as api:
        async with scorer_of(endpoint(api)) as scorer:
            with pytest.raises(kind, match=says):
                await scorer.score(QUERY, TEXTS, SECONDS)
            api.sabotage = Sabotage.SORTED
            assert len(await scorer.score(QUERY, TEXTS, SECONDS)) == 4


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0.5", 0.5),
        ("-7", 0.1),
        ("3600", 5.0),
        ("nan", 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
    ],
)
async def test_a_busy_api_says_when_to_retry(header: str, seconds: float) -> None:
    with remote_api(Sabotage.BUSY) as api:
        api.retry_after = header
        async with scorer_of(endpoint(api)) as scorer:
            with pytest.raises(Overloaded) as caught:
                await scorer.score(QUERY, TEXTS, SECONDS)
    assert caught.value.retry_delay_seconds == seconds


async def test_a_dead_api_is_unavailable_at_once() -> None:
    """Nothing listens at the port."""
    [port] = free_ports(1)
    dead = RemoteEndpoint(url=f"http://127.0.0.1:{port}/v1/rerank", model="m")

    async with scorer_of(dead) as scorer:
        with pytest.raises(ModelUnavailable, match="model m does not answer"):
            await scorer.score(QUERY, TEXTS, SECONDS)


async def test_a_slow_api_ends_by_the_callers_deadline_or_its_own() -> None:
    """The caller's deadline does not count against the API; the endpoint's own limit does."""
    with remote_api(Sabotage.SLOW) as api:
        async with scorer_of(endpoint(api)) as scorer:
            with pytest.raises(DeadlineExceeded):
                await scorer.score(QUERY, TEXTS, 0.2)
        async with scorer_of(endpoint(api, request_seconds=0.2)) as scorer:
            with pytest.raises(ModelUnavailable, match=r"no answer in 0\.2 s"):
                await scorer.score(QUERY, TEXTS, SECONDS)
            # Neither does a byte now and then keep it waiting.
            api.sabotage = Sabotage.DRIP
            with pytest.raises(ModelUnavailable, match=r"no answer in 0\.2 s"):
                await scorer.score(QUERY, TEXTS, SECONDS)


async def test_a_cancelled_call_lets_its_place_go() -> None:
    """With one place, the next call would wait for it forever."""
    with remote_api(Sabotage.SLOW) as api:
        async with scorer_of(endpoint(api, max_request_count=1)) as scorer:
            call = asyncio.create_task(scorer.score(QUERY, TEXTS, 60.0))
            await asyncio.to_thread(api.asked.wait, SECONDS)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            api.sabotage = Sabotage.SORTED

            await scorer.score(QUERY, TEXTS, 60.0)


async def test_the_key_is_sent_only_to_the_api(caplog: pytest.LogCaptureFixture) -> None:
    """Neither into an error nor into the log."""
    with remote_api(Sabotage.REFUSED) as api:
        async with scorer_of(endpoint(api), key="secret-key") as scorer:
            with pytest.raises(ModelUnavailable) as caught:
                await scorer.score(QUERY, TEXTS, SECONDS)

    assert api.headers[0]["Authorization"] == "Bearer secret-key"
    assert "secret-key" not in caught.value.message + caplog.text


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting names where contents go."""
    [port] = free_ports(1)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    with remote_api() as api:
        async with scorer_of(endpoint(api)) as scorer:
            assert len(await scorer.score(QUERY, TEXTS, SECONDS)) == 4


async def test_a_certificate_of_no_known_authority_is_refused() -> None:
    """With your own authority it is accepted; trustme makes both."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with remote_api(tls=context) as api:
        assert api.url.startswith("https://")
        for trusted, is_answered in ((trust, True), (None, False)):
            client = RemoteHttpClient(endpoint(api), trust=trusted)
            scorer = RemoteScorer(client, endpoint(api))
            try:
                if is_answered:
                    assert len(await scorer.score(QUERY, TEXTS, SECONDS)) == 4
                else:
                    with pytest.raises(ModelUnavailable, match="certificate verify failed"):
                        await scorer.score(QUERY, TEXTS, SECONDS)
            finally:
                await client.close()


def test_unusable_settings_are_refused_at_the_start() -> None:
    for url, model, says in (
        ("rerank:8000", "m", "not the address of an API"),
        ("https://", "m", "no host"),
        ("https://:443/v1/rerank", "m", "no host"),
        ("http://rerank:port/v1/rerank", "m", "Port could not be cast"),
        ("http://rerank:99999/v1/rerank", "m", "Port out of range"),
        ("http://[::1/v1/rerank", "m", "Invalid IPv6"),
        ("http://re\nrank/v1/rerank", "m", "blanks"),
        ("https://name:secret@rerank/v1", "m", "RERANK_REMOTE_KEY_FILE"),
        ("https://a/b", "", "no model's name"),
        ("https://a/b", "m" * 257, "over 256 bytes"),
    ):
        with pytest.raises(ValueError, match=says):
            RemoteEndpoint(url=url, model=model)


def test_the_identity_covers_the_model_and_the_settings_of_its_scores() -> None:
    """Another address serves the same model; another size of pictures gives other scores."""
    one = RemoteEndpoint(url="https://a/v1/rerank", model="m")

    assert one.identity.startswith("m@")
    assert one.identity == RemoteEndpoint(url="https://b/v1/rerank", model="m").identity
    others = [
        RemoteEndpoint(url=one.url, model="n"),
        RemoteEndpoint(url=one.url, model="m", shape=RemoteShape.JINA),
        RemoteEndpoint(url=one.url, model="m", scores=RemoteScores.LOGIT),
        RemoteEndpoint(url=one.url, model="m", picture_side=512),
    ]
    assert len({one.identity, *(each.identity for each in others)}) == 5
