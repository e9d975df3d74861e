"""A search of every form, and what its answers say without times, costs and cursors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tandem.client import (
    Client,
    FusionMethod,
    GivenEncoding,
    HybridFusion,
    Modality,
    QueryPart,
    Search,
    SearchResult,
    StoredItem,
)
from tandem.errors import TandemError
from tandem.model_io.repository.manifest import Manifest

INDEX = "forms"
NORMALISED = "both scores, normalised"
"""The form whose scores are divided by the spread of the others, as are their differences."""
_APART = {"seconds", "cost", "next_cursor", "triton_queue_seconds", "triton_compute_seconds"}


def forms(
    text: str, picture: bytes, item_id: str, manifest: Manifest
) -> Mapping[str, Callable[[Client], Any]]:
    """Returns by name what asks a client; `item_id` is a stored picture's."""
    stored = StoredItem(item_id)
    dimension = manifest.embedding_dim
    given = GivenEncoding([dimension**-0.5] * dimension, manifest.fingerprint, Modality.TEXT)
    options: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
        "a text": (text, {}),
        "a picture": (picture, {}),
        "a stored item": (stored, {"target_modality": Modality.TEXT}),
        "pictures like a picture": (stored, {"target_modality": Modality.IMAGE}),
        "a text and a picture": (
            [QueryPart(text, 0.7), QueryPart(picture, 0.3)],
            {"target_modality": Modality.IMAGE},
        ),
        "away from a picture": (
            [QueryPart(text), QueryPart(stored, -0.5)],
            {"target_modality": Modality.IMAGE},
        ),
        "an encoding": (given, {"target_modality": Modality.IMAGE}),
        "both kinds": (text, {"all_modalities_included": True, "return_n": 12}),
        "without a rerank": (text, {"rerank_disabled": True}),
        "a rerank of three": (text, {"retrieve_k": 8, "rerank_k": 3}),
        "both scores": (text, {"fusion": FusionMethod.LOGIT_ADD, "explained": True}),
        NORMALISED: (
            text,
            {"fusion": FusionMethod.NORMALISED_ADD, "cross_encoder_weight": 0.6, "explained": True},
        ),
        "varied": (text, {"relevance_weight": 0.5, "duplicate_similarity": 0.9999}),
        "likely ones": (text, {"min_probability": 0.2}),
        "a filter": (text, {"where": "colour = red or number >= 7", "content_included": True}),
        "words too": (text, {"hybrid": True, "all_modalities_included": True}),
        "other words, fused by score": (
            text,
            {
                "keywords": "umbrella",
                "hybrid_fusion": HybridFusion.Z_SCORE,
                "keyword_weight": 0.7,
                "target_modality": Modality.TEXT,
                "explained": True,
            },
        ),
        "words of filtered items": (
            text,
            {"hybrid": True, "where": "number >= 4", "all_modalities_included": True},
        ),
        "as deep as needed": (text, {"adaptive_depth": True}),
        "neighbours where there is no model of them": (text, {"neighbours_enabled": True}),
    }
    asked: dict[str, Callable[[Client], Any]] = {
        name: _search(query, told) for name, (query, told) in options.items()
    }
    asked["a batch"] = lambda client: client.search_batch(
        [Search(text, index_id=INDEX), Search("", index_id=INDEX), Search(picture, index_id=INDEX)]
    )
    asked["a stream"] = lambda client: list(client.search_stream(text, index_id=INDEX))
    asked["pages"] = _pages(text)
    asked["documents"] = lambda client: client.score_documents(
        text, [picture, text, stored], index_id=INDEX
    )
    asked["the index"] = _counted
    asked["the model"] = lambda client: client.describe_model()
    return asked


def said(answer: Any) -> Any:
    """Returns an answer as plain values, without what differs from one call to the next."""
    if isinstance(answer, TandemError):
        return type(answer).__name__, answer.message
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        return {
            each.name: said(getattr(answer, each.name))
            for each in dataclasses.fields(answer)
            if each.name not in _APART
        }
    if isinstance(answer, Mapping):
        return {str(key): said(value) for key, value in answer.items()}
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        return [said(each) for each in answer]
    return answer


def assert_same(one: Any, other: Any, tolerance: float, place: str = "answer") -> None:
    """Asserts that two answers say the same, numbers within a tolerance.

    Items whose scores differ by no more may have changed places: which pairs the model scores in
    one batch rounds their logits.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), place
        for key, value in one.items():
            assert_same(value, other[key], tolerance, f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other), place
        other = _in_places_of(one, other, tolerance)
        for number, value in enumerate(one):
            assert_same(value, other[number], tolerance, f"{place}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert abs(one - other) <= tolerance, f"{place}: {one} and {other}"
    else:
        assert one == other, f"{place}: {one!r} and {other!r}"


def _in_places_of(one: list[Any], other: list[Any], tolerance: float) -> list[Any]:
    """Returns the other's items in the order of one, if only ties within the tolerance differ."""
    if not all(isinstance(each, dict) and {"item_id", "score"} <= each.keys() for each in other):
        return other
    found = {each["item_id"]: each for each in other}
    if {each["item_id"] for each in one} != found.keys():
        return other
    placed = [found[each["item_id"]] for each in one]
    if any(
        abs(here["score"] - there["score"]) > tolerance
        for here, there in zip(placed, other, strict=True)
    ):
        return other
    ranks = [each["final_rank"] for each in other]
    return [{**each, "final_rank": rank} for each, rank in zip(placed, ranks, strict=True)]


def _search(query: Any, options: Mapping[str, Any]) -> Callable[[Client], SearchResult]:
    return lambda client: client.search(query, index_id=INDEX, **options)


def _counted(client: Client) -> tuple[str, int, list[int]]:
    """Returns of the index what does not depend on its upkeep."""
    found = client.describe_index(index_id=INDEX)
    counts = [found.item_count(modality) for modality in Modality]
    return found.model_fingerprint, found.embedding_dimension, counts


def _pages(text: str) -> Callable[[Client], list[SearchResult]]:
    def turn(client: Client) -> list[SearchResult]:
        pages = [client.search(text, index_id=INDEX, return_n=2)]
        while pages[-1].next_cursor and len(pages) < 4:
            pages.append(client.search_page(pages[-1].next_cursor, index_id=INDEX))
        return pages

    return turn
