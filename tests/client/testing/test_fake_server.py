"""The fake for callers' tests: what it finds, and that it keeps to the contract as Tandem does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf.message import Message

from tandem import errors
from tandem.client import (
    NO_RETRIES,
    AsyncClient,
    Client,
    HybridFusion,
    Item,
    Modality,
    QueryPart,
    ScoredDocuments,
    Search,
    SearchResult,
    StoredItem,
    where,
)
from tandem.client.testing import FakeServer
from tandem.contract.search.score_calibration import ScoreCalibration
from tandem.v1 import content_pb2
from tandem.v1 import content_service_pb2 as pb
from tandem.v1.content_service_pb2_grpc import ContentServiceStub
from tests.support.orchestrator_svc.threaded_door import threaded_door

# The real orchestrator's downstream services are fakes as well, which read a number as an angle.
ITEMS = [
    *(
        Item(
            f"image-{n}",
            image=str(n).encode(),
            attributes={"count": n, "caption": f"a drawing of {n}"},
        )
        for n in range(12)
    ),
    *(Item(f"text-{n}", text=str(n)) for n in range(3)),
]


def shape(result: SearchResult, *, is_counted: bool = True) -> object:
    """Returns what an answer says besides scores, times and the model's name."""
    return (
        [
            (
                each.modality,
                each.final_rank,
                each.match_logit is not None,
                each.match_probability is not None,
                each.content is not None,
                bool(each.attributes),
                str(each.ordered_by),
            )
            for each in result.items
        ],
        {each.item_id.split("-")[0] for each in result.items},
        result.coverage.is_full,
        # The shards behind the real orchestrator count after the filter here.
        is_counted and (result.coverage.covered_item_count, result.coverage.item_count),
        (result.rerank.stop, result.rerank.reranked_depth, result.rerank.missing_count),
        result.degradations,
        bool(result.next_cursor),
        result.is_final,
        result.neighbours.stop if result.neighbours else None,
    )


def worded(result: SearchResult) -> object:
    """Returns what an answer says of the words that it was found by."""
    return (
        shape(result),
        {
            each.item_id: (
                each.hybrid.keyword_rank,
                each.hybrid.keyword_score,
                each.hybrid.similarity_rank is not None,
            )
            for each in result.items
            if each.hybrid
        },
        {each.keyword_state for each in result.retrievals},
    )


def scores(scored: ScoredDocuments) -> object:
    """Returns which scores each document has, and its error."""
    return [
        (
            each.match_logit is not None,
            each.match_probability is not None,
            each.similarity is not None,
            type(each.error),
        )
        for each in scored.scores
    ], bool(scored.reranker)


def pages(client: Client) -> object:
    """Returns the ids of all pages, and the shape of the second."""
    first = client.search("5", index_id="s", return_n=5)
    second = client.search_page(first.next_cursor, index_id="s")
    third = client.search_page(second.next_cursor, index_id="s", return_n=5)
    ids = [each.item_id for result in (first, second, third) for each in result.items]
    return sorted(ids), shape(second), shape(third)


def batch(client: Client) -> object:
    """Returns shapes and errors of a batch."""
    searches = [
        Search("1", index_id="s"),
        Search("1", index_id="none"),
        Search([], index_id="s"),
        Search("1", index_id="s", retrieve_k=0),
    ]
    return [
        shape(each) if isinstance(each, SearchResult) else type(each)
        for each in client.search_batch(searches)
    ]


def ingested(client: Client) -> object:
    """Returns each item's error, of items good and bad."""
    items = [Item("a", text="1"), Item("b"), Item("a", text="2"), Item("", text="3")]
    return [
        (each.item_id, type(each.error), bool(each.consistency_token))
        for each in client.ingest(items, index_id="other")
    ]


def seen(client: Client) -> object:
    """Returns the shape of a search that sees a write."""
    *_, last = client.ingest([Item("text-9", text="9")], index_id="s")
    tokens = [last.consistency_token]
    return shape(client.search("9", index_id="s", consistency_tokens=tokens, retrieve_k=2))


def removed(client: Client) -> object:
    """Returns counts of removals."""
    list(client.ingest([Item("a", text="1"), Item("b", text="2")], index_id="gone"))
    counts = [client.remove(["a", "zz"], index_id="gone").removed_count]
    whole = client.remove_index(index_id="gone")
    return counts, whole.removed_count, whole.is_complete


BOTH = [QueryPart("1"), QueryPart(b"2", 0.5)]
CALLS: dict[str, Callable[[Client], object]] = {
    "text": lambda c: shape(c.search("5", index_id="s")),
    "counts": lambda c: shape(c.search("5", index_id="s", retrieve_k=6, rerank_k=2, return_n=4)),
    "no rerank": lambda c: shape(c.search("5", index_id="s", rerank_disabled=True)),
    "contents": lambda c: shape(c.search("5", index_id="s", content_included=True)),
    "attributes": lambda c: shape(c.search("5", index_id="s", attributes_included=True)),
    "filter": lambda c: shape(
        c.search("5", index_id="s", where=where.at_least("count", 9)), is_counted=False
    ),
    "nothing": lambda c: shape(c.search("5", index_id="s", where="count > 99"), is_counted=False),
    "stored item": lambda c: shape(
        c.search(StoredItem("image-1"), index_id="s", target_modality=Modality.TEXT)
    ),
    "parts": lambda c: shape(c.search(BOTH, index_id="s", target_modality=Modality.IMAGE)),
    "both modalities": lambda c: shape(c.search("5", index_id="s", all_modalities_included=True)),
    "neighbours": lambda c: c.search("5", index_id="s", neighbours_enabled=True).degradations,
    "stream": lambda c: [shape(each) for each in c.search_stream("5", index_id="s")],
    "words": lambda c: worded(c.search("a drawing of 7", index_id="s", hybrid=True, return_n=99)),
    "other words": lambda c: worded(c.search("5", index_id="s", keywords="drawing 7", return_n=99)),
    "words alone": lambda c: [
        each.item_id
        for each in c.search(
            "5", index_id="s", keywords="7", keyword_weight=1.0, retrieve_k=1
        ).items
    ],
    "fusions": lambda c: [
        worded(c.search("7", index_id="s", hybrid_fusion=each, return_n=99))
        for each in HybridFusion
    ],
    "words of both modalities": lambda c: worded(
        c.search("1", index_id="s", hybrid=True, all_modalities_included=True, return_n=100)
    ),
    "without words": lambda c: worded(c.search("5", index_id="s")),
    "no weight of words": lambda c: c.search("5", index_id="s", hybrid=True, keyword_weight=2.0),
    "documents": lambda c: scores(
        c.score_documents("5", [b"5", "5", StoredItem("image-1"), StoredItem("zz")], index_id="s")
    ),
    "no documents": lambda c: c.score_documents("5", []),
    "pages": pages,
    "batch": batch,
    "ingest": ingested,
    "seen": seen,
    "removal": removed,
    "no index": lambda c: c.search("5", index_id="none"),
    "bad index": lambda c: c.remove_index(index_id="none"),
    "no query": lambda c: c.search([], index_id="s"),
    "no item": lambda c: c.search(StoredItem("zz"), index_id="s", target_modality=Modality.TEXT),
    "no target": lambda c: c.search(StoredItem("image-1"), index_id="s"),
    "too many": lambda c: c.search("5", index_id="s", retrieve_k=1001),
    "none returned": lambda c: c.search("5", index_id="s", return_n=0),
    "bad cursor": lambda c: c.search_page(b"nonsense", index_id="s"),
    "bad token": lambda c: c.search("5", index_id="s", consistency_tokens=["nonsense"]),
    "no neighbours": lambda c: c.search("5", index_id="s", neighbours_required=True),
    "no neighbour model": lambda c: c.search(
        "5", index_id="s", neighbours_enabled=True, neighbours_required=True
    ),
}


TEXT, IMAGE = content_pb2.Content(text="5"), content_pb2.Content(image=b"5")
BEST_WINDOW = content_pb2.TRUNCATION_POLICY_BEST_WINDOW
# Of ContentService, which the client has no method for.
MESSAGES: dict[str, Message] = {
    "items": pb.FetchItemsRequest(index_id="s", item_ids=["text-1", "zz", "image-3", "text-1"]),
    "no items": pb.FetchItemsRequest(index_id="s"),
    "ids": pb.ListItemsRequest(index_id="s"),
    "ids after one": pb.ListItemsRequest(index_id="s", page_token="image-3", page_size=1000),
    "a page": pb.ListItemsRequest(index_id="s", page_size=4),
    "ids of no index": pb.ListItemsRequest(index_id="none"),
    "embeddings": pb.EmbedContentsRequest(contents=[TEXT, content_pb2.Content(), IMAGE]),
    "windows": pb.EmbedContentsRequest(contents=[TEXT], truncation_policy=BEST_WINDOW),
    "no document": pb.ScoreDocumentsRequest(query=TEXT, documents=[pb.Document()]),
}
REFUSED = ("no items", "too ", "bad ", "no page", "no embed", "no query", "windows")


@pytest.fixture(scope="module", name="real_address")
def _real_address() -> Iterator[str]:
    with threaded_door({item.item_id: 0.5 for item in [*ITEMS, Item("text-9")]}) as address:
        yield address


@pytest.fixture(scope="module", name="fake_address")
def _fake_address() -> Iterator[str]:
    with FakeServer() as server:
        yield server.address


@pytest.fixture(scope="module", name="real")
def _real(real_address: str) -> Iterator[Client]:
    with Client(real_address, retries=NO_RETRIES) as client:
        list(client.ingest(ITEMS, index_id="s"))
        yield client


@pytest.fixture(scope="module", name="fake")
def _fake(fake_address: str) -> Iterator[Client]:
    with Client(fake_address, retries=NO_RETRIES) as client:
        list(client.ingest(ITEMS, index_id="s"))
        yield client


def answered(address: str, request: Message) -> object:
    """Returns what ContentService answers besides scores, vectors and the model's name."""
    with grpc.insecure_channel(address) as channel:
        stub = ContentServiceStub(channel)
        method = getattr(stub, type(request).__name__.removesuffix("Request"))
        try:
            answer = method(request, timeout=30)
        except grpc.RpcError as error:
            return error.code(), dict(error.trailing_metadata())["tandem-reason"]
    if isinstance(answer, pb.EmbedContentsResponse):
        return [(each.WhichOneof("outcome"), each.error.reason) for each in answer.results]
    if isinstance(answer, pb.ScoreDocumentsResponse):
        return [(each.HasField("match_logit"), each.error.reason) for each in answer.scores]
    return answer


@pytest.mark.usefixtures("real", "fake")
def test_the_fake_has_the_content_service(real_address: str, fake_address: str) -> None:
    """The same message to the real orchestrator has the same answer, except for scores."""
    for name, message in MESSAGES.items():
        expected = answered(real_address, message)

        assert answered(fake_address, message) == expected, name
        is_refused = name.startswith(REFUSED) or name.endswith("of no index")
        assert isinstance(expected, tuple) == is_refused, name


def test_stored_documents_are_refused_as_the_reranker_does(fake: Client) -> None:
    """The one behind the real orchestrator here scores any item of any index."""
    with pytest.raises(errors.IndexNotFound):
        fake.score_documents("5", [StoredItem("image-1")], index_id="none")
    with pytest.raises(errors.TokensInvalid, match="item 'text-1' has the query's modality; send"):
        fake.score_documents("5", [StoredItem("text-1")], index_id="s")


def test_hybrid_ranks_are_those_of_both_lists() -> None:
    """Worked by hand: 1 / (60 + rank) of each list, half of each."""
    items = [
        Item("a", image=b"red"),
        Item("b", image=b"cup", attributes={"caption": ("old", "mug")}),
        Item("c", image=b"red cup"),
    ]
    with FakeServer() as server, Client(server.address) as client:
        list(client.ingest(items, index_id="pets"))
        found = client.search(
            "red cup", index_id="pets", keywords="mug", retrieve_k=3, rerank_disabled=True
        ).items

    # Nearest: c (both words), a, b, whose caption's words make it less alike. By words: b alone.
    assert [each.item_id for each in found] == ["b", "c", "a"]
    assert [each.score for each in found] == pytest.approx([1 / 126 + 1 / 122, 1 / 122, 1 / 124])


def outcome(call: Callable[[Client], object], client: Client) -> object:
    """Returns what the call returns, or the class of its error."""
    try:
        return call(client)
    except errors.TandemError as error:
        return type(error)


def test_the_fake_keeps_to_the_contract(real: Client, fake: Client) -> None:
    """The same call of the real orchestrator has the same outcome, except for scores."""
    for name, call in CALLS.items():
        expected = outcome(call, real)

        assert outcome(call, fake) == expected, name
        if name.startswith(("no ", "bad ", "too ", "two ", "none ")) and name != "no rerank":
            assert expected in errors.ERROR_CLASSES.values() or expected == 0, name


def test_words_find_items() -> None:
    with FakeServer() as server, Client(server.address) as client:
        items = [
            Item("red-cup", image=b"\x89PNG\xff"),
            Item("two", image=b"two red cups"),
            Item("three", image=b"\xff", attributes={"colour": "blue cup"}),
            Item("t", text="a red cup"),
        ]
        assert not [each for each in client.ingest(items, index_id="pets") if each.error]

        found = client.search("Red cup!", index_id="pets").items
        texts = client.search(b"red cup", index_id="pets").items

    assert [each.item_id for each in found] == ["red-cup", "three", "two"]
    # Of {red, cup} and {red, cup, png}: 2 of the root of 6; 2 of 3 in all, times 8, less 4.
    assert found[0].similarity == pytest.approx(2 / 6**0.5)
    assert found[0].match_logit == pytest.approx(8 * 2 / 3 - 4, abs=1e-6)
    assert [each.item_id for each in texts] == ["t"]


def test_failures_can_be_requested() -> None:
    with FakeServer() as server, Client(server.address) as client:
        server.fail(errors.ServiceUnavailable(service="a shard", why="a test says so"), times=2)
        assert client.describe_model().family == "fake"
        server.fail(errors.IndexNotFound(index_id="pets"))
        with pytest.raises(errors.IndexNotFound, match="pets"):
            client.describe_model()
        server.fail(errors.StoreFull(why="the disk is full"))
        with pytest.raises(errors.StoreFull):
            list(client.ingest([Item("a", text="b")], index_id="pets"))


async def test_an_async_client_calls_it_too() -> None:
    """It serves from threads of its own."""
    with FakeServer() as server:
        async with AsyncClient(server.address) as client:
            outcomes = client.ingest([Item("a", image=b"a cup")], index_id="pets")
            assert [each.error async for each in outcomes] == [None]
            [found] = (await client.search("cup", index_id="pets")).items

    assert found.item_id == "a"


def test_requested_failures_can_be_taken_back() -> None:
    """A test that has seen enough continues without them."""
    with FakeServer() as server, Client(server.address, retries=NO_RETRIES) as client:
        server.fail(errors.StoreFull(why="the test says so"), times=5)
        with pytest.raises(errors.StoreFull):
            client.describe_model()
        server.fail(errors.StoreFull(why="the test says so"), times=0)

        assert client.describe_model()


def test_health_checks_take_no_thread_from_calls() -> None:
    """Each client's connection watches the fake, and without an answer it would log an error."""
    with FakeServer() as server, grpc.insecure_channel(server.address) as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watches = [watch(b"", timeout=60) for _ in range(20)]

        # A HealthCheckResponse whose status is SERVING.
        assert [next(each) for each in watches] == [b"\x08\x01"] * 20
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60) == b"\x08\x01"
        with Client(server.address) as client:
            assert client.describe_model()
        for each in watches:
            each.cancel()


def test_a_query_about_nothing_here_gets_no_answer(fake: Client) -> None:
    """An empty answer tells whether items were found and none is trusted, or none was found."""
    plain = fake.search("giraffe", index_id="s")
    abstaining = fake.search("giraffe", index_id="s", max_false_answer_rate=0.05)
    answered = fake.search("a drawing of 3", index_id="s", max_false_answer_rate=0.05)
    filtered = fake.search(
        "a drawing of 3", index_id="s", max_false_answer_rate=0.05, where="count = 99"
    )

    empty = {
        name: (bool(each.items), each.abstained)
        for name, each in {
            "plain": plain,
            "stranger": abstaining,
            "answered": answered,
            "filtered": filtered,
        }.items()
    }
    assert empty == {
        "plain": (True, False),
        "stranger": (False, True),
        "answered": (True, False),
        "filtered": (False, False),
    }
    assert plain.abstention is None
    assert filtered.abstention is not None
    assert "nothing here matches" in abstaining.why_empty
    measured = ScoreCalibration(
        model_fingerprint="m", query_modality=Modality.TEXT, target_modality=Modality.IMAGE
    )
    assert fake.set_calibrations([measured, measured], index_id="s") == 1
