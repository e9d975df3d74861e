"""The compressor next to the SDK's answers."""

from typing import Any

import pytest
from langchain_core.documents import Document

from tandem.client import Access, Client, StoredItem
from tandem.errors import Unauthenticated
from tandem_langchain import TandemReranker


@pytest.fixture(scope="session")
def reranker(system: dict[str, Any], access: Access) -> TandemReranker:
    """The reranker."""
    return TandemReranker(
        address=system["address"], index_id="scenes", timeout_seconds=60.0, access=access
    )


async def test_stored_images_are_ordered_by_the_cross_encoder(
    reranker: TandemReranker, sdk: Client, system: dict[str, Any], caption: str
) -> None:
    """By both calls; the picture of the caption was last before."""
    ids = list(reversed(list(system["captions"])[:8]))
    scores = sdk.score_documents(caption, [StoredItem(each) for each in ids], index_id="scenes")
    logits = {each: score.match_logit for each, score in zip(ids, scores.scores, strict=True)}
    given = [
        Document("", metadata={"item_id": each, "modality": "image", "kept": True}) for each in ids
    ]

    for ordered in (
        reranker.compress_documents(given, caption),
        await reranker.acompress_documents(given, caption),
    ):
        assert [each.metadata["item_id"] for each in ordered] == sorted(
            ids, key=lambda each: logits[each] or 0.0, reverse=True
        )
        assert ordered[0].metadata["item_id"] == ids[-1]
        assert ordered[0].metadata["kept"]
        assert ordered[0].metadata["relevance_score"] > 0.5
    assert "relevance_score" not in given[0].metadata


def test_texts_and_images_rank_by_probability_and_missing_items_last(
    reranker: TandemReranker, system: dict[str, Any], caption: str
) -> None:
    """Text of any other retriever, without an id."""
    other = list(system["captions"].values())[-1]
    given = [
        Document("", metadata={"item_id": "none", "modality": "image"}),
        Document(other),
        Document(caption),
        Document("", metadata={"item_id": next(iter(system["captions"])), "modality": "image"}),
    ]

    ordered = reranker.compress_documents(given, caption)

    assert {each.page_content for each in ordered[:2]} == {"", caption}
    assert [each.page_content for each in ordered[2:]] == [other, ""]
    assert [each.metadata["error"] for each in ordered] == [None, None, None, "ITEM_NOT_FOUND"]
    relevances = [each.metadata["relevance_score"] for each in ordered[:3]]
    assert relevances == sorted(relevances, reverse=True)
    [same] = [each.metadata for each in ordered if each.page_content == caption]
    assert same["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert same["relevance_score"] == same["match_probability"] > 0.9
    top = reranker.model_copy(update={"top_n": 2}).compress_documents(given, caption)
    assert [each.metadata for each in top] == [each.metadata for each in ordered[:2]]
    assert reranker.compress_documents([], caption) == []
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        TandemReranker(index_id="scenes", top_n=-1)
    with pytest.raises(ValueError, match="-1 documents cannot be kept"):
        reranker.model_copy(update={"top_n": -1}).compress_documents(given, caption)


def test_long_texts_are_cut_unless_they_are_to_be_refused(
    reranker: TandemReranker, caption: str
) -> None:
    """And every option survives JSON, but a misspelt one is refused."""
    given = [Document("The harbour was rebuilt. " * 60), Document(caption), Document(" ")]
    strict = reranker.model_copy(update={"truncation_policy": "error"})

    first, cut, empty = reranker.compress_documents(given, caption)
    errors = [each.metadata["error"] for each in strict.compress_documents(given, caption)]

    assert first.page_content == caption
    assert (cut.metadata["truncated"], first.metadata["truncated"]) == (True, False)
    assert (cut.metadata["error"], empty.metadata["error"]) == (None, "TEXT_EMPTY")
    assert sorted(map(str, errors)) == ["None", "TEXT_EMPTY", "TEXT_TOO_LONG"]
    read = TandemReranker.model_validate_json(strict.model_dump_json())
    assert read == strict.model_copy(update={"access": read.access})
    with pytest.raises(ValueError, match="top_k"):
        TandemReranker(index_id="scenes", top_k=2)  # type: ignore[call-arg]


async def test_refusals_keep_their_names(reranker: TandemReranker, access: Access) -> None:
    """As those of the retriever."""
    strange = reranker.model_copy(update={"access": Access("wrong", access.authority)})

    with pytest.raises(Unauthenticated):
        strange.compress_documents([Document("one cat")], "one cat")
    with pytest.raises(Unauthenticated):
        await strange.acompress_documents([Document("one cat")], "one cat")
