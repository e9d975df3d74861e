"""What the SDK sends: batches within their bounds, and names for what cannot be sent."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.client import AsyncClient, NewItem, Query, where
from tandem.client.sendable import NewContent
from tandem.contract.content import TruncationPolicy
from tandem.contract.filtering.attribute_wire import filter_from_proto
from tandem.errors import (
    AttributeInvalid,
    ContentMissing,
    FilterInvalid,
    ImageTooLarge,
    IndexIdInvalid,
    ItemIdInvalid,
    KOutOfRange,
    RequestMalformed,
    ServerUnknown,
    TandemError,
    TextTooLong,
)
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.messages import IngestRequests, search_request
from tests.support.client.search_server import search_server
from tests.support.grid import sampled

LONE_SURROGATE = "dog \ud800"
MIB = 2**20


def made_search_request(query: Query = "two dogs", **changes: object) -> pb.SearchItemsRequest:
    """Returns a request with everything left to the server but what is given."""
    arguments: dict[str, object] = {
        "index_id": "scenes",
        "target_modality": None,
        "retrieve_k": None,
        "rerank_k": None,
        "return_n": None,
        "rerank_disabled": False,
        "content_included": False,
        "where": None,
        "consistency_tokens": (),
        "full_coverage_required": False,
    }
    return search_request(query, **(arguments | changes))


def batches(items: list[NewItem], batch_item_count: int = 32) -> list[list[str]]:
    """Returns the ids of each batch."""
    requests = IngestRequests(items, "scenes", batch_item_count)
    return [[item.item_id for item in request.items] for request in requests]


def test_a_filter_is_sent_with_its_meaning() -> None:
    wanted = where.equals("style", "noto") | where.between("count", 2, 5)

    assert filter_from_proto(made_search_request(where=wanted).filter) == wanted
    written = "style = noto or (count >= 2 and count <= 5)"
    assert filter_from_proto(made_search_request(where=written).filter) == (
        where.equals("style", "noto") | (where.at_least("count", 2) & where.at_most("count", 5))
    )
    with pytest.raises(FilterInvalid, match="at character 8"):
        made_search_request(where="style =")
    with pytest.raises(FilterInvalid):
        made_search_request(where=where.exists("a b"))


@pytest.mark.parametrize("index_id", ["Scenes", LONE_SURROGATE])
def test_a_bad_index_id_is_refused_before_anything_is_sent(index_id: str) -> None:
    with pytest.raises(IndexIdInvalid):
        made_search_request(index_id=index_id)
    with pytest.raises(IndexIdInvalid):
        IngestRequests([], index_id, 32)


async def test_a_removal_names_its_items() -> None:
    async with search_server() as (address, service), AsyncClient(address) as client:
        await client.remove(iter(["b", "a"]), index_id="scenes", request_id="mine")
        for ids, request_id, kind in (
            (["a", LONE_SURROGATE], "", ItemIdInvalid),
            (["a"], LONE_SURROGATE, RequestMalformed),
            ("ab", "", RequestMalformed),
        ):
            with pytest.raises(kind):
                await client.remove(ids, index_id="scenes", request_id=request_id)
        with pytest.raises(IndexIdInvalid):
            await client.remove(["a"], index_id="Scenes")

    assert service.requests == [
        pb.RemoveItemsRequest(index_id="scenes", item_ids=["b", "a"], request_id="mine")
    ]


@given(st.integers(0, 200), st.integers(1, 64))
def test_batches_have_the_requested_size(item_count: int, batch_item_count: int) -> None:
    """All but the last are full, and together they are the items in their order."""
    ids = [f"item-{n}" for n in range(item_count)]

    made = batches([(item_id, "a text") for item_id in ids], batch_item_count)

    assert list(chain(*made)) == ids
    assert all(len(batch) == batch_item_count for batch in made[:-1])
    assert all(1 <= len(batch) <= batch_item_count for batch in made)


def test_large_items_split_a_batch() -> None:
    """Four of 8 MiB and their ids do not fit in 32 MiB; a small one joins the last."""
    large = bytes(8 * MIB)
    items: list[NewItem] = [*((name, large) for name in "abcd"), ("e", "small")]

    assert batches(items) == [["a", "b", "c"], ["d", "e"]]


UNSENDABLE: list[tuple[tuple[object, ...], type[TandemError], str]] = [
    ((LONE_SURROGATE, "text"), ItemIdInvalid, "UTF-8"),
    ((7, "text"), ItemIdInvalid, "int"),
    (("id", LONE_SURROGATE), RequestMalformed, "the content has a lone surrogate"),
    (("id", "犬" * 44_000), TextTooLong, "132,000 bytes"),
    (("id", bytes(32 * MIB + 1)), ImageTooLarge, "33,554,433 bytes"),
    (("id", None), ContentMissing, "no text, image or regions"),
    (("id", Path("a.jpg")), RequestMalformed, "path 'a.jpg', whose file is not read; send a str"),
    (("id", ["text"]), RequestMalformed, "type list; send a str"),
    (("id", "text", ["attribute"]), AttributeInvalid, "type list; send a dict"),
    (("id", "text", {LONE_SURROGATE: 1}), AttributeInvalid, "dog"),
    (("id", "text", {"a b": 1}), AttributeInvalid, "not a name"),
    (("id", "text", {5: 1}), AttributeInvalid, "int"),
    (("id", "text", {"n": LONE_SURROGATE}), AttributeInvalid, "'n' cannot be sent"),
    (("id", "text", {"n": ("red", LONE_SURROGATE)}), AttributeInvalid, "'n' cannot be sent"),
    (("id", "text", {"n": 2**63}), AttributeInvalid, "'n' cannot be sent"),
    (("id", "text", {"n": float("nan")}), AttributeInvalid, "finite"),
    (("id", "text", {"n": None}), AttributeInvalid, "'n' cannot be sent"),
    (("id", "text", {"n": "x" * 1_025}), AttributeInvalid, "1,025 bytes"),
    (("id", "text", {f"n{n}": 1 for n in range(65)}), AttributeInvalid, "65"),
]


@pytest.mark.parametrize("item", ["text", 7, ("id", "text", {}, 1)])
def test_a_value_that_is_not_an_item_is_refused_in_its_place(item: Any) -> None:
    """A str of two letters would otherwise be an id and a text."""
    requests = IngestRequests([("good", "text"), item], "scenes", 32)

    (request,) = requests
    results = [pb.IngestResult(item_id=sent.item_id) for sent in request.items]
    good, refused = requests.outcomes(pb.IngestItemsResponse(results=results))

    assert (good.item_id, good.error) == ("good", None)
    assert refused.item_id == ""
    assert isinstance(refused.error, RequestMalformed)
    assert "an item " in refused.error.message
    assert "send an Item, (item_id, content)" in refused.error.message


@pytest.mark.parametrize(
    ("item", "kind", "why", "batch_item_count"),
    sampled([(*row, count) for count in (32, 1) for row in UNSENDABLE], fault=lambda row: row[1]),
)
def test_only_an_unsendable_item_is_refused_and_its_fault_named(
    item: NewItem, kind: type[TandemError], why: str, batch_item_count: int
) -> None:
    items: list[NewItem] = [("good", "text"), item, ("better", "text"), item]
    requests = IngestRequests(items, "scenes", batch_item_count)

    outcomes: list[Any] = []
    for request in requests:
        assert request.IsInitialized()
        results = [
            pb.IngestResult(
                item_id=sent.item_id,
                error=None if sent.item_id else {"reason": "ERROR_REASON_ITEM_ID_INVALID"},
            )
            for sent in request.items
        ]
        response = pb.IngestItemsResponse(results=results, consistency_token="t")
        outcomes += requests.outcomes(response)
    requests.sent.check_all_answered()

    assert requests.sent.error is None
    assert [outcome.item_id for outcome in outcomes] == ["good", item[0], "better", item[0]]
    assert [outcome.error is None for outcome in outcomes] == [True, False, True, False]
    assert {outcome.consistency_token for outcome in outcomes} == {"t"}
    for outcome in outcomes[1::2]:
        assert type(outcome.error) is kind
        assert why in outcome.error.message


def test_a_stream_that_leaves_a_batch_unanswered_did_not_end_well() -> None:
    """Otherwise items that were not stored would not be missed."""
    requests = IngestRequests([("a", "text"), ("b", "text")], "scenes", 1, target="here:1")
    sent = iter(requests)
    next(sent)
    assert list(requests.outcomes(pb.IngestItemsResponse(results=[{"item_id": "a"}])))
    with pytest.raises(ServerUnknown, match="here:1"):
        requests.sent.check_all_answered()

    assert len(list(sent)) == 1
    with pytest.raises(ServerUnknown, match="here:1"):
        requests.sent.check_all_answered()
    with pytest.raises(ServerUnknown, match="0 results of 1 items"):
        list(requests.outcomes(pb.IngestItemsResponse()))


@pytest.mark.parametrize(
    ("query", "options", "kind"),
    sampled(
        [
            (LONE_SURROGATE, {}, RequestMalformed),
            ("x" * 131_073, {}, TextTooLong),
            (bytes(32 * MIB + 1), {}, ImageTooLarge),
            ("a", {"retrieve_k": 2**31}, KOutOfRange),
            ("a", {"consistency_tokens": ["good", LONE_SURROGATE]}, RequestMalformed),
            ("a", {"where": where.equals(LONE_SURROGATE, "x")}, FilterInvalid),
        ],
        fault=lambda row: row[2],
    ),
)
def test_an_unsendable_search_is_refused_and_its_fault_named(
    query: Query, options: dict[str, object], kind: type[TandemError]
) -> None:
    with pytest.raises(kind):
        made_search_request(query, **options)


def test_slow_items_do_not_delay_earlier_ones() -> None:
    """A server ends a stream that says nothing for minutes. Named batches wait to be whole: under
    their names they must be the same when they are sent again.
    """
    now = 0.0

    def items() -> Iterator[tuple[str, str]]:
        nonlocal now
        for number in range(6):
            now += 20.0
            yield str(number), "text"

    def sizes(request_id: str) -> list[int]:
        batches = IngestRequests(items(), "scenes", 64, request_id, clock=lambda: now)
        return [len(each.items) for each in batches]

    assert sizes("") == [2, 2, 2]
    assert sizes("mine") == [6]


def test_items_are_drawn_only_as_batches_are_sent() -> None:
    """A caller with a million pictures does not hold them all."""
    drawn = []
    items = ((str(n), drawn.append(n) or "text") for n in range(10))  # type: ignore[func-returns-value]
    sent = iter(IngestRequests(items, "scenes", 3))

    next(sent)

    assert drawn == [0, 1, 2]


def test_batches_have_request_ids_that_are_the_same_next_time() -> None:
    """The caller's id and the batch's number, of batches split by their bytes too."""
    items: list[tuple[str, NewContent]] = [(f"item-{n}", bytes(8 * MIB)) for n in range(8)]

    def request_ids(request_id: str) -> list[str]:
        requests = IngestRequests(iter(items), "scenes", 5, request_id)
        return [request.request_id for request in requests]

    assert request_ids("mine") == request_ids("mine") == ["mine/0", "mine/1", "mine/2"]
    assert request_ids("") == ["", "", ""]


def test_every_batch_carries_the_truncation_policy() -> None:
    """ERROR by default; the batches that a large item splits off carry it too."""
    items: list[NewItem] = [(name, bytes(8 * MIB)) for name in "abcdefg"]

    for policy in TruncationPolicy:
        made = list(IngestRequests(items, "scenes", 5, "", policy))
        assert len(made) == 3
        assert {request.truncation_policy for request in made} == {
            content_pb2.TruncationPolicy.Value(f"TRUNCATION_POLICY_{policy.name}")
        }
    unsaid = next(iter(IngestRequests(items, "scenes", 1)))
    assert unsaid.truncation_policy == content_pb2.TRUNCATION_POLICY_ERROR
