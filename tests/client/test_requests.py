"""What the SDK sends: batches within their bounds, and names for what cannot be sent."""

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.attribute_wire import attributes_from_proto, filter_from_proto
from tandem.attributes import Attributes
from tandem.client import where
from tandem.client.query import NewContent, Query, search_request
from tandem.client.requests import IngestRequests, NewItem, remove_request
from tandem.content import Modality, TruncationPolicy
from tandem.errors import (
    AttributeInvalid,
    FilterInvalid,
    IndexIdInvalid,
    ItemIdInvalid,
    RequestMalformed,
)
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb

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
    return search_request(query, **(arguments | changes))  # type: ignore[arg-type]


def batches(items: list[NewItem], batch_item_count: int = 32) -> list[list[str]]:
    """Returns the ids of each batch."""
    requests = IngestRequests(items, "scenes", batch_item_count)
    return [[item.item_id for item in request.items] for request in requests]


def test_what_is_not_asked_for_is_left_to_the_server() -> None:
    """Unset, which is not the same as 0."""
    request = made_search_request()

    assert request == pb.SearchItemsRequest(
        index_id="scenes", query=content_pb2.Content(text="two dogs")
    )
    for name in ("retrieve_k", "rerank_k", "return_n", "filter"):
        assert not request.HasField(name)


def test_a_zero_is_sent_for_the_server_to_refuse() -> None:
    """A caller's mistake is not taken for a wish for the default."""
    assert made_search_request(retrieve_k=0).HasField("retrieve_k")


def test_everything_asked_for_is_sent() -> None:
    """Field by field; bytes are an image."""
    request = made_search_request(
        b"\x89PNG",
        target_modality=Modality.TEXT,
        retrieve_k=30,
        rerank_k=20,
        return_n=10,
        rerank_disabled=True,
        content_included=True,
        consistency_tokens=["token-a", "token-b"],
        full_coverage_required=True,
    )

    assert request == pb.SearchItemsRequest(
        index_id="scenes",
        query=content_pb2.Content(image=b"\x89PNG"),
        target_modality=content_pb2.MODALITY_TEXT,
        retrieve_k=30,
        rerank_k=20,
        return_n=10,
        rerank_disabled=True,
        content_included=True,
        consistency_tokens=["token-a", "token-b"],
        full_coverage_required=True,
    )


def test_a_query_that_no_message_can_carry_is_refused_by_name() -> None:
    """Half a surrogate pair, from a file name for example, is not UTF-8."""
    with pytest.raises(RequestMalformed, match="surrogate"):
        made_search_request(LONE_SURROGATE)


def test_a_filter_is_sent_as_meant() -> None:
    """And a bad one is refused before anything is sent."""
    wanted = where.equals("style", "noto") | where.between("count", 2, 5)

    assert filter_from_proto(made_search_request(where=wanted).filter) == wanted
    with pytest.raises(FilterInvalid):
        made_search_request(where=where.exists("a b"))


def test_attributes_go_with_their_items() -> None:
    """Those that have any, in every type."""
    attributes: Attributes = {
        "style": "noto",
        "count": 3,
        "tags": ("a", "b"),
        "hidden": True,
        "weight": 0.5,
    }
    items: list[NewItem] = [("a", "text", attributes), ("b", "text"), ("c", "text", {})]

    [request] = IngestRequests(items, "scenes", 32)

    got = [attributes_from_proto(item.attributes) for item in request.items]
    assert got == [attributes, {}, {}]


def test_attributes_that_no_message_can_carry_end_the_stream_by_name() -> None:
    """An integer of over 64 bits, for example; what is only against the rules is sent."""
    requests = IngestRequests([("a", "text", {"a b": 1}), ("b", "text", {"n": 2**63})], "s", 1)
    sent = iter(requests)

    assert list(next(sent).items[0].attributes) == ["a b"]
    with pytest.raises(AttributeInvalid, match="'n' cannot be sent"):
        next(sent)
    assert isinstance(requests.error, AttributeInvalid)


@pytest.mark.parametrize("index_id", ["", "Scenes", "scenes\n", LONE_SURROGATE])
def test_a_bad_index_id_is_refused_before_anything_is_sent(index_id: str) -> None:
    """By each of the three calls."""
    with pytest.raises(IndexIdInvalid):
        made_search_request(index_id=index_id)
    with pytest.raises(IndexIdInvalid):
        IngestRequests([], index_id, 32)
    with pytest.raises(IndexIdInvalid):
        remove_request(["a"], index_id)


def test_a_removal_names_its_items() -> None:
    """In their order, each checked."""
    assert remove_request(["a"], "scenes", "mine").request_id == "mine"
    assert remove_request(iter(["b", "a"]), "scenes") == pb.RemoveItemsRequest(
        index_id="scenes", item_ids=["b", "a"]
    )
    with pytest.raises(ItemIdInvalid):
        remove_request(["a", LONE_SURROGATE], "scenes")


@given(st.integers(0, 200), st.integers(1, 64))
def test_batches_hold_as_many_items_as_asked_for(item_count: int, batch_item_count: int) -> None:
    """All but the last are full, and together they are the items in their order."""
    ids = [f"item-{n}" for n in range(item_count)]

    made = batches([(item_id, "a text") for item_id in ids], batch_item_count)

    assert list(chain(*made)) == ids
    assert all(len(batch) == batch_item_count for batch in made[:-1])
    assert all(1 <= len(batch) <= batch_item_count for batch in made)


@pytest.mark.parametrize(("asked", "given_"), [(0, 1), (-5, 1), (65, 64), (10_000, 64)])
def test_batches_stay_within_what_the_server_takes(asked: int, given_: int) -> None:
    """1 to 64, whatever was asked for."""
    made = batches([(str(n), "text") for n in range(64)], asked)

    assert len(made[0]) == given_


def test_large_items_split_a_batch() -> None:
    """12 + 12 MiB fit in 32, a third 12 does not; a small one joins it."""
    large = bytes(12 * MIB)
    items: list[NewItem] = [("a", large), ("b", large), ("c", large), ("d", "small")]

    assert batches(items) == [["a", "b"], ["c", "d"]]


def test_one_item_over_the_bound_goes_alone() -> None:
    """The server judges it; the items beside it are not lost with it."""
    items: list[NewItem] = [("a", "small"), ("b", bytes(33 * MIB)), ("c", "small")]

    assert batches(items) == [["a"], ["b"], ["c"]]


def test_texts_count_by_their_bytes() -> None:
    """Eleven million characters of three bytes are 33 MiB, though a third as many characters."""
    text = "犬" * (6 * MIB)  # 18 MiB

    assert batches([("a", text), ("b", text)]) == [["a"], ["b"]]


@pytest.mark.parametrize("item", [(LONE_SURROGATE, "a text"), ("id", LONE_SURROGATE)])
def test_an_item_that_no_message_can_carry_ends_the_stream_by_name(item: tuple[str, str]) -> None:
    """The batches before it were sent; the caller finds the reason in `error`."""
    requests = IngestRequests([("good", "text"), item], "scenes", 1)
    sent = iter(requests)

    assert next(sent).items[0].item_id == "good"
    with pytest.raises(ItemIdInvalid, match="surrogate"):
        next(sent)
    assert isinstance(requests.error, ItemIdInvalid)


def test_items_are_drawn_only_as_batches_are_sent() -> None:
    """Whoever has a million pictures does not hold them all."""
    drawn = []
    items = ((str(n), drawn.append(n) or "text") for n in range(10))  # type: ignore[func-returns-value]
    sent = iter(IngestRequests(items, "scenes", 3))

    next(sent)

    assert drawn == [0, 1, 2]


def test_batches_have_request_ids_that_are_the_same_next_time() -> None:
    """The caller's id and the batch's number, of batches split by their bytes too."""
    items: list[tuple[str, NewContent]] = [(f"item-{n}", bytes(12 * MIB)) for n in range(6)]

    def request_ids(request_id: str) -> list[str]:
        requests = IngestRequests(iter(items), "scenes", 4, request_id)
        return [request.request_id for request in requests]

    assert request_ids("mine") == request_ids("mine") == ["mine/0", "mine/1", "mine/2"]
    assert request_ids("") == ["", "", ""]


def test_every_batch_says_what_to_do_with_long_texts() -> None:
    """ERROR unless told otherwise; the batches that a large item splits off say so too."""
    items: list[NewItem] = [(name, bytes(20 * MIB)) for name in "abc"]

    for policy in TruncationPolicy:
        made = list(IngestRequests(items, "scenes", 2, "", policy))
        assert len(made) == 3
        assert {request.truncation_policy for request in made} == {
            content_pb2.TruncationPolicy.Value(f"TRUNCATION_POLICY_{policy.name}")
        }
    unsaid = next(iter(IngestRequests(items, "scenes", 1)))
    assert unsaid.truncation_policy == content_pb2.TRUNCATION_POLICY_ERROR
