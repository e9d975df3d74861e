"""The retriever next to the SDK's answers."""

import base64
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import ImageNode, QueryBundle, TextNode

from tandem.client import Access, Client, ImageContent, Modality
from tandem.errors import DeadlineExceeded, FilterInvalid, TandemError, Unauthenticated
from tandem_llama_index import TandemRetriever


@pytest.fixture(scope="session")
def given(system: dict[str, Any], access: Access) -> dict[str, Any]:
    """Where the system is."""
    return {
        "index_id": "scenes",
        "address": system["address"],
        "similarity_top_k": 3,
        "timeout_seconds": 60.0,
        "access": access,
    }


async def test_it_answers_as_the_sdk(given: dict[str, Any], sdk: Client, caption: str) -> None:
    """Order, scores, pictures and attributes, by both calls."""
    retriever = TandemRetriever(**given)
    expected = sdk.search(caption, index_id="scenes", return_n=3, content_included=True).items

    for found in (retriever.retrieve(caption), await retriever.aretrieve(caption)):
        assert [each.node.node_id for each in found] == [item.item_id for item in expected]
        for each, item in zip(found, expected, strict=True):
            assert isinstance(each.node, ImageNode)
            assert isinstance(item.content, ImageContent)
            assert base64.b64decode(each.node.image or "") == item.content.image_bytes
            assert each.node.metadata["attributes"] == item.attributes
            assert each.node.metadata["degradations"] == []
            assert each.score == pytest.approx(item.match_probability)


async def test_a_picture_finds_texts(
    given: dict[str, Any], sdk: Client, caption: str, tmp_path: Path
) -> None:
    """The query's text is then not read."""
    [item] = sdk.search(caption, index_id="scenes", return_n=1, content_included=True).items
    assert isinstance(item.content, ImageContent)
    picture = tmp_path / "scene"
    picture.write_bytes(item.content.image_bytes)
    query = QueryBundle("not read", image_path=str(picture))
    expected = sdk.search(item.content.image_bytes, index_id="scenes", return_n=3).items
    retriever = TandemRetriever(**given, target_modality=Modality.TEXT)

    for found in (retriever.retrieve(query), await retriever.aretrieve(query)):
        assert [each.node.node_id for each in found] == [each.item_id for each in expected]
        assert all(type(each.node) is TextNode for each in found)
        assert found[0].node.get_content().strip()


def test_filters_and_options_are_passed_on(given: dict[str, Any], caption: str) -> None:
    """With a control: without the filter there are other layouts."""
    deep = given | {"similarity_top_k": 24}
    every = TandemRetriever(**deep).retrieve(caption)
    stacked = TandemRetriever(**deep, where="layout = stacked").retrieve(caption)
    likely = TandemRetriever(**deep, search_options={"min_probability": 0.5}).retrieve(caption)

    assert len({each.node.metadata["attributes"]["layout"] for each in every}) > 1
    assert {each.node.metadata["attributes"]["layout"] for each in stacked} == {"stacked"}
    assert 0 < len(likely) < len(every)


def test_a_degraded_answer_is_marked(
    given: dict[str, Any], system: dict[str, Any], caption: str
) -> None:
    """In each node; its score is then the similarity."""
    found = TandemRetriever(**given | {"address": system["degraded_address"]}).retrieve(caption)

    assert [each.node.metadata["degradations"] for each in found] == [["RERANK_SKIPPED"]] * 3
    assert [each.score for each in found] == [each.node.metadata["similarity"] for each in found]


async def test_refusals_keep_their_names(
    given: dict[str, Any], access: Access, caption: str
) -> None:
    """A caller can tell a bad filter from a busy server."""
    refused: list[tuple[dict[str, Any], type[TandemError]]] = [
        ({"where": "layout ="}, FilterInvalid),
        ({"access": Access("wrong", access.authority)}, Unauthenticated),
        ({"timeout_seconds": 0.0001}, DeadlineExceeded),
    ]
    for changes, named in refused:
        changed = TandemRetriever(**{**given, **changes})
        with pytest.raises(named):
            changed.retrieve(caption)
        with pytest.raises(named):
            await changed.aretrieve(caption)
