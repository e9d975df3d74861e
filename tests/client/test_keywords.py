"""Each option of a search is a keyword, with a type, a default and a sentence for an editor."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import pytest

from tandem.client import (
    AsyncClient,
    Client,
    FusionMethod,
    HybridFusion,
    Modality,
    Search,
    SearchOptions,
    TruncationPolicy,
    where,
)
from tests.support.client.messages import search_request
from tests.support.client.search_server import search_server

VALUES: Mapping[str, object] = {
    "target_modality": Modality.TEXT,
    "retrieve_k": 7,
    "rerank_k": 7,
    "return_n": 7,
    "fusion": FusionMethod.ADD,
    "cross_encoder_weight": 0.25,
    "keywords": "cup",
    "hybrid_fusion": HybridFusion.Z_SCORE,
    "keyword_weight": 0.25,
    "min_probability": 0.25,
    "max_false_answer_rate": 0.25,
    "relevance_weight": 0.25,
    "duplicate_similarity": 0.25,
    "truncation_policy": TruncationPolicy.TRUNCATE,
    "where": where.exists("style"),
    "consistency_tokens": ("token",),
}
NEEDED: Mapping[str, Mapping[str, object]] = {
    "cross_encoder_weight": {"fusion": FusionMethod.ADD},
    "neighbours_required": {"neighbours_enabled": True},
}
"""The options without which one has no meaning."""
OPTIONS = get_type_hints(SearchOptions)
CALLS: list[Callable[..., Any]] = [
    *(Client.search, Client.search_stream, AsyncClient.search, AsyncClient.search_stream),
    Search.__init__,
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__qualname__)
def test_every_option_is_a_keyword(call: Callable[..., Any]) -> None:
    parameters = inspect.signature(call).parameters
    keywords = [each for each in parameters.values() if each.kind is each.KEYWORD_ONLY]
    hints = get_type_hints(call)

    assert [each.name for each in keywords] == ["index_id", *OPTIONS]
    assert {name: hints[name] for name in OPTIONS} == OPTIONS
    assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_keyword_has_its_sentence(client: type) -> None:
    for method in (client.search, client.ingest):  # type: ignore[attr-defined]
        keywords = set(inspect.signature(method).parameters) - {
            "self",
            "query",
            "items",
            "index_id",
        }
        missing = {name for name in keywords if f"`{name}`" not in (method.__doc__ or "")}
        assert missing == set(), method.__qualname__


def test_both_clients_have_the_same_keywords() -> None:
    """Their signatures are equal, and no docstring only points to the other client's."""
    for name, method in vars(Client).items():
        if name.startswith("_"):
            continue
        other = getattr(AsyncClient, name)
        assert inspect.signature(method).parameters == inspect.signature(other).parameters
        assert len(other.__doc__) >= len(method.__doc__) * 0.8, name


async def test_every_keyword_reaches_the_server() -> None:
    async with search_server() as (address, service), AsyncClient(address) as client:
        for name in OPTIONS:
            needed: Any = NEEDED.get(name, {})
            option: Any = {**needed, name: VALUES.get(name, True)}
            expected = search_request("a cat", index_id="scenes", **option)
            assert expected != search_request("a cat", index_id="scenes", **needed)

            await client.search("a cat", index_id="scenes", **option)
            assert service.requests.pop() == expected
            answers = client.search_stream("a cat", index_id="scenes", **option)
            assert len([each async for each in answers]) == 2
            assert service.requests.pop().search == expected
