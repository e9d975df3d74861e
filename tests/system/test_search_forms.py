"""Queries of every form through real services and the shipped model: the same thing in another form
is the same query.
"""

from __future__ import annotations

import math

import pytest

from tandem.client import (
    Client,
    FoundItem,
    FusionMethod,
    Modality,
    SearchResult,
    StoredItem,
)
from tandem.corpus.records import Caption, Record


@pytest.fixture(name="caption")
def _caption(records: list[Record]) -> Caption:
    """An English one."""
    return next(each for each in records[0].captions if each.language == "en")


def ids(result: SearchResult) -> list[str]:
    """Returns the items, best first."""
    return [item.item_id for item in result.items]


def assert_alike(some: SearchResult, others: SearchResult) -> None:
    """Asserts the same hits with the same scores, as near as models and float16 tokens get."""

    def by_id(result: SearchResult) -> dict[str, FoundItem]:
        return {item.item_id: item for item in result.items}

    assert by_id(some).keys() == by_id(others).keys()
    for item_id, item in by_id(some).items():
        other = by_id(others)[item_id]
        assert item.similarity == pytest.approx(other.similarity, abs=1e-3)
        assert item.match_logit is not None
        assert item.match_logit == pytest.approx(other.match_logit, abs=0.1)


def test_a_stored_item_searches_as_its_content_does(
    client: Client, scenes_index: str, records: list[Record], caption: Caption
) -> None:
    """In both directions: the encoding that was stored is the one that would be made again."""
    picture = records[0]

    text = client.search(caption.text, index_id=scenes_index, return_n=20)
    stored_text = client.search(
        StoredItem(caption.caption_id),
        index_id=scenes_index,
        target_modality=Modality.IMAGE,
        return_n=20,
    )
    image = client.search(picture.image.read(), index_id=scenes_index, return_n=20)
    stored_image = client.search(
        StoredItem(picture.record_id),
        index_id=scenes_index,
        target_modality=Modality.TEXT,
        return_n=20,
    )

    assert_alike(text, stored_text)
    assert_alike(image, stored_image)
    assert stored_text.rerank.stop == "COMPLETE"
    assert stored_text.model_fingerprint == client.describe_model().fingerprint


def test_both_kinds_explained_varied_and_in_pages(
    client: Client, scenes_index: str, caption: Caption
) -> None:
    """Everything at once: the terms add up, the kinds take turns, the pages make the whole."""
    options = {
        "index_id": scenes_index,
        "all_modalities_included": True,
        "retrieve_k": 30,
        "fusion": FusionMethod.NORMALISED_ADD,
        "cross_encoder_weight": 0.7,
        "relevance_weight": 0.8,
        "duplicate_similarity": 0.999,
        "explained": True,
    }
    whole = client.search(caption.text, **options, return_n=30)  # type: ignore[arg-type]
    page = client.search(caption.text, **options, return_n=8)  # type: ignore[arg-type]
    items = list(page.items)
    while page.next_cursor and len(items) < 30:
        page = client.search_page(page.next_cursor, index_id=scenes_index)
        items += page.items

    for item in whole.items:
        assert item.explanation is not None
        total = math.fsum(term.value * term.weight for term in item.explanation.terms)
        assert total == pytest.approx(item.score, abs=1e-6)
        assert list(item.explanation.ranks.values())[-1] == item.final_rank
    kinds = [item.modality for item in whole.items]
    assert kinds[:10] == [Modality.IMAGE, Modality.TEXT] * 5
    assert [item.item_id for item in items[:30]] == ids(whole)
    assert not whole.degradations
