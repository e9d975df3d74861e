"""Arguments of wrong types, as a caller without a type checker sends them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.client import Client, Search
from tandem.client.testing import FakeServer
from tandem.contract.content import Modality
from tandem.errors import RequestMalformed

Calls = Callable[[Client], object]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a server that holds the items a, b and c."""
    with FakeServer() as server, Client(server.address) as client:
        outcomes = client.ingest([(name, "two dogs") for name in "abc"], index_id="scenes")
        assert [outcome.error for outcome in outcomes] == [None] * 3
        yield client


def search(query: Any = "two dogs", **options: Any) -> Calls:
    """Returns a search with one odd argument."""
    return lambda client: client.search(query, **{"index_id": "scenes", **options})


def ingest(items: Any, **options: Any) -> Calls:
    """Returns an ingest with one odd argument."""
    return lambda client: list(client.ingest(items, index_id="scenes", **options))


MISTYPED: list[tuple[Calls, str]] = [
    (search(5), "the query is of type int; send a str"),
    (search(Path("a.jpg")), r"the query is the path .*; send a str, .*path\.read_bytes\(\)"),
    (search(["two dogs"]), "an element of the query is of type str; send QueryParts"),
    (search(retrieve_k="3"), "retrieve_k is of type str; send an int"),
    (search(min_probability="0.5"), "min_probability is of type str; send a float"),
    (search(target_modality="video"), "'video'; send one of Modality.TEXT, Modality.IMAGE"),
    (search(fusion=5), "fusion is of type int; send one of FusionMethod.*, or its name"),
    (search(keywords=b"dogs"), "keywords is of type bytes; send a str"),
    (search(where=5), "where is of type int; send a filter, or its text"),
    (search(consistency_tokens="token"), "consistency_tokens is of type str; send a list"),
    (ingest("abc"), "items is of type str; send a list or iterator of Item"),
    (ingest([], progress=5), "progress is of type int; send a function"),
    (lambda client: client.remove("abc", index_id="scenes"), "item_ids is of type str"),
    (lambda client: client.search_batch(["two dogs"]), "an element of searches is of type str"),  # type: ignore[list-item]
    (lambda client: client.search_page("x", index_id="scenes"), "cursor is of type str"),  # type: ignore[arg-type]
    (lambda client: client.score_documents("dogs", "text"), "documents is of type str"),
]


@pytest.mark.parametrize(("call", "says"), MISTYPED)
def test_a_wrong_type_is_refused_by_name_and_changes_nothing(
    client: Client, call: Calls, says: str
) -> None:
    """Removing "abc" would otherwise remove the items a, b and c."""
    with pytest.raises(RequestMalformed, match=says):
        call(client)

    found = client.search("two dogs", index_id="scenes", target_modality=Modality.TEXT)
    assert sorted(item.item_id for item in found.items) == ["a", "b", "c"]


def test_a_wrong_type_fails_only_its_search_of_a_batch(client: Client) -> None:
    bad = Search("two dogs", index_id="scenes", retrieve_k="3")  # type: ignore[arg-type]

    good, refused = client.search_batch([Search("two dogs", index_id="scenes"), bad])

    assert not isinstance(good, Exception)
    assert isinstance(refused, RequestMalformed)


def test_numpys_numbers_are_numbers(client: Client) -> None:
    found = client.search(
        "two dogs",
        index_id="scenes",
        target_modality=Modality.TEXT,
        retrieve_k=np.int64(2),  # type: ignore[arg-type]
        relevance_weight=np.float32(1),  # type: ignore[arg-type]
        explained=np.bool_(True),  # type: ignore[arg-type]
    )

    assert len(found.items) == 2
