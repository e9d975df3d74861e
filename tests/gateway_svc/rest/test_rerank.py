"""gateway_svc.rest.rerank: what clients of Cohere and Jina send."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tandem.contract.content import LONG_TEXT_CHARACTERS
from tandem.v1 import content_pb2
from tests.support.gateway_svc.running import gateway

pytestmark = pytest.mark.usefixtures("each_shape")

PICTURE = b"\x89PNG picture"
DATA = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
PART = {"content": [{"type": "image_url", "image_url": {"url": DATA}}]}


async def test_documents_of_every_form_are_sorted() -> None:
    documents = [DATA, {"image": DATA}, "a text", PART, {"item_id": "stored"}]
    async with gateway() as served:
        response = await served.client.post(
            "/v1/rerank",
            json={
                "model": "any", "query": "a dog", "documents": documents, "index_id": "scenes",
                "top_n": 4,
            },
        )  # fmt: skip

    [sent] = served.service.requests
    results = response.json()["results"]
    assert [each["index"] for each in results] == [4, 3, 1, 2]
    assert results[0]["relevance_score"] == pytest.approx(0.04)
    assert results[0]["scored_by"] == "cross_encoder"
    assert (sent.query.text, sent.index_id) == ("a dog", "scenes")
    assert [each.content.image for each in sent.documents[:2]] == [PICTURE] * 2
    assert sent.documents[3].content.image == PICTURE
    assert sent.documents[4].item_id == "stored"
    assert response.json()["model"] == "cross-a"


async def test_documents_that_the_cross_encoder_cannot_read_rank_last() -> None:
    async with gateway() as served:
        response = await served.client.post(
            "/v1/rerank",
            json={"query": DATA, "documents": ["a text", DATA], "return_documents": True},
        )

    first, last = response.json()["results"]
    assert (first["index"], last["index"], last["scored_by"]) == (1, 0, "bi_encoder")
    assert last["relevance_score"] == pytest.approx(0.005)
    assert last["document"] == {"text": "a text"}
    assert served.service.requests[0].query.image == PICTURE


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank"])
async def test_a_request_with_texts_is_answered_as_tei_does(path: str) -> None:
    asked = {"query": "q", "texts": ["", "cut", "a"], "return_text": True, "truncate": None}
    async with gateway() as served:
        response = await served.client.post(path, json=asked | {"raw_scores": False})

    cut, whole, empty = response.json()
    assert (cut["index"], cut["text"], cut["truncated"]) == (1, "cut", True)
    assert (whole["index"], "truncated" in whole) == (2, False)
    assert empty == {"index": 0, "text": "", "score": 0.0}
    [sent] = served.service.requests
    assert sent.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE


async def test_what_was_cut_or_empty_is_said_and_scores_fall() -> None:
    """An empty text comes after one whose similarity is negative."""
    asked = {"query": "q", "documents": ["", "unlike", "cut"], "top_n": None, "model": None}
    async with gateway() as served:
        response = await served.client.post(
            "/rerank", json=asked | {"max_tokens_per_doc": 60, "further": None}
        )
        await served.client.post("/rerank", json={"query": "q", "documents": ["x" * 200_000]})
        cut = served.service.requests[-1].documents[0].content.text
        refused = await served.client.post(
            "/rerank", json={"query": "q", "documents": [DATA, "unlike"]}
        )
        raw = await served.client.post(
            "/rerank", json={"query": "q", "documents": [DATA, "a"], "raw_scores": True}
        )
        await served.client.post(
            "/rerank", json={"query": "q", "documents": ["a"], "truncate": False}
        )

    assert len(cut) == LONG_TEXT_CHARACTERS
    answer = response.json()
    results = answer["results"]
    assert [each["index"] for each in results] == [2, 1, 0]
    assert results[1]["relevance_score"] == results[2]["relevance_score"] == pytest.approx(-0.2)
    assert (results[2]["scored_by"], results[0]["truncated"]) == (None, True)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"]
    assert (refused.status_code, refused.json()["reason"]) == (400, "UNCALIBRATED")
    assert "raw_scores" in raw.json()["detail"]
    assert served.service.requests[-1].truncation_policy == content_pb2.TRUNCATION_POLICY_ERROR


async def test_an_uncalibrated_cross_encoder_still_orders() -> None:
    async with gateway() as served:
        response = await served.client.post(
            "/v1/rerank",
            json={"query": "a", "documents": [{"item_id": "uncalibrated"}], "index_id": "scenes"},
        )

    [result] = response.json()["results"]
    assert (result["relevance_score"], result["scored_by"]) == (0.5, "cross_encoder")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"query": "q"}, "documents is not a list"),
        ({"query": "q", "documents": [{"image": "https://x.example/a.png"}]}, "documents[0]"),
        ({"query": "q", "documents": [3]}, "documents[0]"),
        ({"documents": ["a"]}, "query"),
        ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ({"query": "q", "documents": [{"content": []}]}, "documents[0].content"),
        (
            {"query": "q", "documents": ["a"], "top_k": 1},
            "top_k is not a field of a rerank; send top_n",
        ),
        ({"query": "q", "texts": ["a"], "truncation_direction": "left"}, "truncation_direction"),
        ({"query": "q", "documents": ["a"], "return_documents": 1}, "return_documents is neither"),
        ({"query": "q", "documents": [{"text": "a", "title": "b"}]}, "documents[0]"),
        ({"query": "q", "documents": [{"text": "a"}], "rank_fields": ["text"]}, "rank_fields"),
    ],
)
async def test_invalid_reranks_are_refused_by_name(body: dict[str, Any], told: str) -> None:
    async with gateway() as served:
        response = await served.client.post("/v1/rerank", json=body)

    assert response.status_code == 400
    assert told in response.json()["detail"]
    assert not served.service.requests


async def test_a_document_that_cannot_be_scored_fails_the_call_with_its_place() -> None:
    """Without the error, its score would be missing from the answer unnoticed."""
    async with gateway() as served:
        response = await served.client.post(
            "/v1/rerank", json={"query": "q", "documents": [DATA, "no"]}
        )

    assert (response.status_code, response.json()["reason"]) == (404, "ITEM_NOT_FOUND")
    assert response.json()["detail"].startswith("documents[1]: ")
