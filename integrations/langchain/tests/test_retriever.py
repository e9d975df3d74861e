"""The retriever next to the SDK's answers."""

import base64
from typing import Any

import pytest

from tandem.client import Access, Client, ImageContent, Modality
from tandem.errors import DeadlineExceeded, FilterInvalid, TandemError, Unauthenticated
from tandem_langchain import TandemRetriever


@pytest.fixture(scope="session")
def retriever(system: dict[str, Any], access: Access) -> TandemRetriever:
    """The retriever."""
    return TandemRetriever(
        address=system["address"], index_id="scenes", k=3, timeout_seconds=60.0, access=access
    )


async def test_it_answers_as_the_sdk(retriever: TandemRetriever, sdk: Client, caption: str) -> None:
    """Order, scores, pictures and attributes, by both calls."""
    expected = sdk.search(caption, index_id="scenes", return_n=3, content_included=True).items

    for found in (retriever.invoke(caption), await retriever.ainvoke(caption)):
        assert [document.id for document in found] == [item.item_id for item in expected]
        for document, item in zip(found, expected, strict=True):
            assert isinstance(item.content, ImageContent)
            assert base64.b64decode(document.metadata["image"]) == item.content.image_bytes
            assert document.metadata["attributes"] == item.attributes
            assert document.metadata["match_probability"] == pytest.approx(item.match_probability)
            assert document.metadata["degradations"] == []


def test_texts_are_the_content_of_documents(retriever: TandemRetriever, caption: str) -> None:
    """As for any other retriever of texts; an image has the text of an attribute."""
    texts = retriever.model_copy(update={"target_modality": Modality.TEXT})
    named = retriever.model_copy(update={"text_attribute": "layout"})

    assert texts.invoke(caption)[0].page_content == caption
    assert texts.invoke(caption)[0].metadata["modality"] == "text"
    assert named.invoke(caption)[0].page_content in {"side_by_side", "stacked"}
    assert retriever.invoke(caption)[0].page_content == ""
    [first, *_] = retriever.model_copy(update={"text_attribute": "style"}).invoke(caption)
    assert isinstance(first.metadata["attributes"]["style"], tuple)
    assert first.page_content.split("\n") == list(first.metadata["attributes"]["style"])


def test_filters_and_options_are_passed_on(retriever: TandemRetriever, caption: str) -> None:
    """With a control: without the filter there are other layouts."""
    every = retriever.invoke(caption, k=24)
    stacked = retriever.invoke(caption, k=24, where="layout = stacked")
    likely = retriever.model_copy(update={"search_options": {"min_probability": 0.5}})

    assert len({document.metadata["attributes"]["layout"] for document in every}) > 1
    assert {document.metadata["attributes"]["layout"] for document in stacked} == {"stacked"}
    assert 0 < len(likely.invoke(caption, k=24)) < len(every)
    own = retriever.model_copy(update={"where": "layout = stacked"})
    assert own.invoke(caption, k=None, where=None) == own.invoke(caption)
    with pytest.raises(TypeError, match="not depth"):
        retriever.invoke(caption, depth=3)


def test_a_degraded_answer_is_marked(
    retriever: TandemRetriever, system: dict[str, Any], caption: str
) -> None:
    """In each document."""
    degraded = retriever.model_copy(update={"address": system["degraded_address"]})

    assert [each.metadata["degradations"] for each in degraded.invoke(caption)] == [
        ["RERANK_SKIPPED"]
    ] * 3


async def test_refusals_keep_their_names(
    retriever: TandemRetriever, access: Access, caption: str
) -> None:
    """So that with_retry and with_fallbacks can tell them apart."""
    strange = Access("wrong", access.authority)

    refused: list[tuple[dict[str, Any], type[TandemError]]] = [
        ({"where": "layout ="}, FilterInvalid),
        ({"access": strange}, Unauthenticated),
        ({"timeout_seconds": 0.0001}, DeadlineExceeded),
    ]
    for changes, named in refused:
        changed = retriever.model_copy(update=changes)
        with pytest.raises(named):
            changed.invoke(caption)
        with pytest.raises(named):
            await changed.ainvoke(caption)


def test_no_token_is_serialised(retriever: TandemRetriever, system: dict[str, Any]) -> None:
    """Neither by pydantic nor in a printed retriever, which traces would have."""
    assert system["token"] not in repr(retriever) + retriever.model_dump_json()
