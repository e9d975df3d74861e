"""Searches that ask for an order by neighbours, as their caller reads the answers.

Sixteen items about angles: twelve pictures of 0 to 11 degrees and four texts. The neighbour model
scores the first four of an order, the last of them highest.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from tandem import errors
from tandem.contract.model_description import NeighbourModelDescription
from tandem.search.metrics import NEIGHBOUR_STOPS
from tandem.search.settings import SEARCH_DEFAULTS
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import rerank_service_pb2 as rerank_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.wire import embedding_from_proto
from tests.search.test_degradation import answer, refusal
from tests.support.orchestrator_svc import downstream
from tests.support.orchestrator_svc.downstream import FINGERPRINT, Stack, door, raising, stack

IMAGES = [f"image-{number:02}" for number in range(12)]
MODEL = NeighbourModelDescription(
    fingerprint="neighbours-a",
    base_fingerprint=FINGERPRINT,
    text_query_item_count=4,
    image_query_item_count=3,
    pillar_count=3,
    neighbour_count=2,
    includes_query_pillar=True,
)
DESCRIPTION = replace(downstream.DESCRIPTION, neighbour_model=MODEL)
SHORT_SECONDS = 1.0
NEARLY_BE = pb.Fusion(method="FUSION_METHOD_ADD", cross_encoder_weight=1e-4)


@pytest.fixture
async def filled() -> AsyncIterator[Stack]:
    """The items on two shards, all of which know the neighbour model."""
    async with stack() as behind:
        contents = {
            name: content_pb2.Content(image=str(n).encode()) for n, name in enumerate(IMAGES)
        }
        contents |= {f"text-{n}": content_pb2.Content(text=str(n)) for n in range(1, 5)}
        items = [index_pb.Item(item_id=name, content=each) for name, each in contents.items()]
        for item in items[: len(IMAGES)]:
            item.attributes["degrees"].integer = int(item.content.image)
        async with door(behind) as stub:
            request = pb.IngestItemsRequest(index_id="scenes", items=items)
            assert [each async for each in stub.IngestItems(iter([request]))]
        for shard in behind.shards:
            # The best match is the least similar.
            shard.logits.update({name: float(n) for n, name in enumerate(IMAGES)})
            shard.description = DESCRIPTION
            shard.graph_scores = [0.1, 0.2, 0.3, 0.4]
        yield behind


def search(**fields: object) -> pb.SearchItemsRequest:
    """Returns a search for pictures near 0 degrees, by neighbours."""
    query = content_pb2.Content(text="0")
    request = {"index_id": "scenes", "query": query, "neighbours_enabled": True} | fields
    return pb.SearchItemsRequest(**request)  # type: ignore[arg-type]


def ids(response: pb.SearchItemsResponse) -> list[str]:
    """Returns the items' ids in their order."""
    return [item.item_id for item in response.items]


def requests(behind: Stack, method: str) -> Sequence[object]:
    """Returns the requests of a method to any shard."""
    return [each for shard in behind.shards for each in shard.requests(method)]


def describe(behind: Stack, **fields: object) -> None:
    """Has every rerank_svc describe another neighbour model."""
    model = replace(MODEL, **fields)  # type: ignore[arg-type]
    for shard in behind.shards:
        shard.description = replace(DESCRIPTION, neighbour_model=model)


async def test_the_first_of_the_reranked_are_reordered(filled: Stack) -> None:
    """The rerank's first four are pictures 11 to 8; their scores turn them around."""
    counted = NEIGHBOUR_STOPS.labels("complete")._value.get()
    async with door(filled) as stub:
        found = await answer(stub, search(explained=True))

    assert ids(found) == [IMAGES[n] for n in (8, 9, 10, 11, 7, 6, 5, 4, 3, 2)]
    assert found.neighbours == pb.NeighbourSummary(
        scored_count=4, stop="NEIGHBOUR_STOP_COMPLETE", neighbour_model="neighbours-a"
    )
    assert [item.neighbour_score for item in found.items[:4]] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert [item.HasField("neighbour_score") for item in found.items] == [True] * 4 + [False] * 6
    stages = [pb.OrderingStage.Name(item.ordered_by) for item in found.items]
    assert stages == ["ORDERING_STAGE_NEIGHBOURS"] * 4 + ["ORDERING_STAGE_RERANK"] * 6
    assert [(each.stage, each.rank) for each in found.items[0].explanation.ranks] == [
        ("retrieve", 9),
        ("rerank", 4),
        ("neighbours", 1),
    ]
    assert not found.degradations
    parts = [value for _, value in found.durations.ListFields()]
    total = found.durations.total_duration.ToNanoseconds()
    assert found.durations.neighbours_duration.ToNanoseconds() > 0
    assert sum(part.ToNanoseconds() for part in parts) == pytest.approx(2 * total, rel=1e-3)
    assert NEIGHBOUR_STOPS.labels("complete")._value.get() == counted + 1


async def test_every_form_of_search_has_the_same_order(filled: Stack) -> None:
    """A batch, a stream's last answer, and both pages together."""
    async with door(filled) as stub:
        whole = await answer(stub, search(return_n=12))
        batch = await stub.BatchSearchItems(
            pb.BatchSearchItemsRequest(searches=[search(return_n=12)] * 2)
        )
        first, last = [
            each.answer
            async for each in stub.StreamSearchItems(
                pb.StreamSearchItemsRequest(search=search(return_n=12))
            )
        ]
        start = await answer(stub, search(return_n=3))
        page = await answer(
            stub, pb.SearchItemsRequest(index_id="scenes", cursor=start.next_cursor, return_n=9)
        )

    for each in (*(result.response for result in batch.results), last):
        assert (ids(each), each.neighbours) == (ids(whole), whole.neighbours)
    assert ids(first) == IMAGES
    assert not first.HasField("neighbours")
    assert ids(start) + ids(page) == ids(whole)
    assert page.items[0].neighbour_score == whole.items[3].neighbour_score
    assert page.items[0].ordered_by == pb.ORDERING_STAGE_NEIGHBOURS


async def test_without_a_rerank_the_retrieved_are_reordered(filled: Stack) -> None:
    async with door(filled) as stub:
        found = await answer(stub, search(rerank_disabled=True))

    assert ids(found) == [IMAGES[n] for n in (3, 2, 1, 0, 4, 5, 6, 7, 8, 9)]
    assert found.items[4].ordered_by == pb.ORDERING_STAGE_RETRIEVE
    assert not requests(filled, "ScoreCandidates")


async def test_a_search_by_neighbours_sends_the_whole_graph(filled: Stack) -> None:
    """Each shard is asked once, one graph is scored, and the model is described now and then."""
    async with door(filled) as stub:
        for _ in range(3):
            await answer(stub, search(rerank_disabled=True))

    assert len(requests(filled, "FindNeighbours")) == 3 * len(filled.shards)
    assert len(requests(filled, "ScoreGraph")) == 3
    assert len(requests(filled, "DescribeModel")) == 1
    graph = requests(filled, "ScoreGraph")[0]
    assert isinstance(graph, rerank_pb.ScoreGraphRequest)
    assert graph.query_modality == content_pb2.MODALITY_TEXT
    assert len(graph.nodes) == 5
    assert [len(graph.item_pillars), len(graph.query_pillars)] == [3, 3]
    assert {len(each.near_texts) for each in graph.nodes} == {2}
    # Nearest to 0 degrees are the query itself, then the texts of 1 and 2.
    query = graph.nodes[0]
    pillars = [embedding_from_proto(each) for each in graph.query_pillars]
    assert pillars[0] == pytest.approx(embedding_from_proto(query.embedding))
    assert [pillar[1] for pillar in pillars] == pytest.approx([0.0, 0.017452, 0.034899], abs=1e-5)
    # The picture of 0 degrees is in the query's place, so it has the same neighbours.
    assert graph.nodes[1].near_texts == query.near_texts
    assert graph.nodes[1].near_images == query.near_images


@pytest.mark.parametrize(
    ("fields", "is_the_rerank"),
    [
        ({"rerank_k": 5}, True),
        ({"rerank_k": 5, "filter_text": "degrees >= 0"}, True),  # which leaves none out
        ({"rerank_k": 4}, False),
        ({"rerank_k": 6}, False),
        ({"rerank_disabled": True}, False),
        ({"rerank_k": 5, "filter_text": "degrees >= 1"}, False),  # which leaves out the nearest
        ({"rerank_k": 5, "fusion": NEARLY_BE}, False),
        ({"rerank_k": 5, "gone": IMAGES[2]}, False),  # for the cross-encoder
        ({"rerank_k": 5, "gone": IMAGES[2], "adaptive_depth": True}, False),
    ],
)
async def test_a_model_over_a_rerank_orders_that_rerank_alone(
    filled: Stack, fields: dict[str, object], is_the_rerank: bool
) -> None:
    """Any other keeps its order, and says so."""
    describe(filled, rerank_k=5)
    for shard in filled.shards:
        shard.logits.pop(str(fields.get("gone")), None)
    request = {name: value for name, value in fields.items() if name != "gone"}
    async with door(filled) as stub:
        plain = await answer(stub, search(neighbours_enabled=False, **request))
        found = await answer(stub, search(**request))
        if not is_the_rerank:
            error = await refusal(answer(stub, search(neighbours_required=True, **request)))
            # Of these, a repeated search helps only where a candidate was not scored, unless the
            # search allows for fewer.
            is_fault = "gone" in fields and "adaptive_depth" not in fields
            kind = errors.NeighboursUnavailable if is_fault else errors.RankingInvalid
            assert isinstance(error, kind)

    graphs = requests(filled, "ScoreGraph")
    if not is_the_rerank:
        assert found.neighbours.stop == pb.NEIGHBOUR_STOP_RERANK_MISMATCH
        assert list(found.degradations) == [*plain.degradations, pb.DEGRADATION_NEIGHBOURS_SKIPPED]
        assert (ids(found), graphs) == (ids(plain), [])
        return
    assert not found.degradations
    assert ids(found)[:6] == [IMAGES[n] for n in (1, 2, 3, 4, 0, 5)]
    [graph] = graphs
    assert isinstance(graph, rerank_pb.ScoreGraphRequest)
    in_order = [math.sin(math.radians(degrees)) for degrees in (4, 3, 2, 1, 0)]
    at = [embedding_from_proto(each)[1] for each in graph.item_pillars]
    assert at == pytest.approx(in_order[:3], abs=1e-5)
    at = [embedding_from_proto(node.embedding)[1] for node in graph.nodes[1:]]
    assert at == pytest.approx(in_order[:4], abs=1e-5)
    nearest = [math.cos(math.radians(degrees)) for degrees in (0, 1, 2, 3)]
    assert list(graph.query_similarities) == pytest.approx(nearest, abs=1e-6)
    # The query's neighbours are the first two of the rerank, which it had beside itself before.
    own = [node.near_images[0] for node in graph.nodes[1:3]]
    assert list(graph.nodes[0].near_images) == own


async def test_other_searches_call_and_read_nothing_more(filled: Stack) -> None:
    """The same calls as before there was a third stage, without embeddings."""
    async with door(filled) as stub:
        found = await answer(stub, search(neighbours_enabled=False))

    calls = sorted(name for shard in filled.shards for name, _ in shard.calls)
    assert calls == sorted(
        ["UpsertItems", "SearchEmbeddings", "ScoreCandidates"] * len(filled.shards)
    )
    for request in requests(filled, "SearchEmbeddings"):
        assert isinstance(request, index_pb.SearchEmbeddingsRequest)
        assert not request.embeddings_included
    assert not found.HasField("neighbours")
    assert not found.durations.HasField("neighbours_duration")


async def test_a_shard_without_an_answer_is_named(filled: Stack) -> None:
    """The order is by the other shard's neighbours; who requires all of them is refused."""
    filled.shards[1].before["FindNeighbours"] = raising(errors.InternalFault(why="a bug"))
    describe(filled, pillar_count=1, neighbour_count=1)
    async with door(filled) as stub:
        found = await answer(stub, search())
        error = await refusal(answer(stub, search(neighbours_required=True)))

    assert list(found.degradations) == [pb.DEGRADATION_NEIGHBOURS_PARTIAL]
    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_COMPLETE
    assert [each.shard_number for each in found.neighbours.missing_shards] == [1]
    assert ids(found)[:4] == [IMAGES[n] for n in (8, 9, 10, 11)]
    assert isinstance(error, errors.NeighboursUnavailable)
    assert error.metadata == {"stop": "COMPLETE", "missing_shards": "1"}


@pytest.mark.parametrize(
    ("fault", "stop"),
    [
        (errors.ModelUnavailable(model="leaprr", why="it is gone"), "UNAVAILABLE"),
        (errors.Overloaded(what="64 graphs are waiting"), "OVERLOADED"),
        (errors.ModelOutputInvalid(model="leaprr", why="NaN"), "OUTPUT_INVALID"),
        (errors.NeighbourModelMissing(), "NOT_SERVED"),
        (errors.ModelMismatch(request="a", index="b"), "MODEL_MISMATCH"),
    ],
)
async def test_a_neighbour_model_that_fails_leaves_the_order(
    filled: Stack, fault: errors.TandemError, stop: str
) -> None:
    for shard in filled.shards:
        shard.before["ScoreGraph"] = raising(fault)
    async with door(filled) as stub:
        found = await answer(stub, search())
        error = await refusal(answer(stub, search(neighbours_required=True)))

    assert found.neighbours.stop == pb.NeighbourStop.Value(f"NEIGHBOUR_STOP_{stop}")
    assert list(found.degradations) == [pb.DEGRADATION_NEIGHBOURS_SKIPPED]
    assert ids(found) == IMAGES[:1:-1]
    is_missing = stop == "NOT_SERVED"
    refused = errors.NeighbourModelMissing if is_missing else errors.NeighboursUnavailable
    assert type(error) is refused


@pytest.mark.parametrize("scores", [[0.1, 0.2], [float("nan")] * 4, [1.5] * 4])
async def test_nan_scores_are_not_ranked_by(filled: Stack, scores: Sequence[float]) -> None:
    """Too few, NaN, and no cosines."""
    for shard in filled.shards:
        shard.graph_scores = scores
    async with door(filled) as stub:
        found = await answer(stub, search())

    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_OUTPUT_INVALID
    assert ids(found) == IMAGES[:1:-1]


async def test_another_rerank_service_takes_over(filled: Stack) -> None:
    """Any can score any graph, whichever is asked first."""
    filled.shards[0].before["ScoreGraph"] = raising(errors.InternalFault(why="a bug"))
    async with door(filled) as stub:
        found = [await answer(stub, search()) for _ in range(2)]

    assert {each.neighbours.stop for each in found} == {pb.NEIGHBOUR_STOP_COMPLETE}
    assert len(filled.shards[0].requests("ScoreGraph")) == 1


async def test_its_failures_do_not_stop_the_cross_encoder(filled: Stack) -> None:
    """Breakers of its own open: then it is not called, and the rerank continues."""
    for shard in filled.shards:
        shard.before["ScoreGraph"] = raising(errors.InternalFault(why="a bug"))
        shard.before["FindNeighbours"] = raising(errors.InternalFault(why="a bug"))
    async with door(filled) as stub:
        for _ in range(SEARCH_DEFAULTS.breaker_consecutive_count):
            await answer(stub, search())
        asked = len(requests(filled, "FindNeighbours"))
        found = await answer(stub, search())

    assert asked == SEARCH_DEFAULTS.breaker_consecutive_count * len(filled.shards)
    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_UNAVAILABLE
    assert found.rerank.stop == pb.RERANK_STOP_COMPLETE
    assert not found.coverage.missing_shards


async def test_a_slow_neighbour_model_costs_only_its_own_stage(filled: Stack) -> None:
    """The answer comes in time, reranked, and says that time ran out."""

    async def hang(request: object) -> None:
        await asyncio.sleep(30)

    for shard in filled.shards:
        shard.before["ScoreGraph"] = hang
    async with door(filled) as stub:
        found = await stub.SearchItems(search(), timeout=SHORT_SECONDS)

    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_TIME
    assert found.rerank.stop == pb.RERANK_STOP_COMPLETE


async def test_an_index_smaller_than_the_pillars_is_named(filled: Stack) -> None:
    """There are four texts, and the query."""
    async with door(filled) as stub:
        describe(filled, pillar_count=6)
        found = await answer(stub, search())
        error = await refusal(answer(stub, search(neighbours_required=True)))

    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_TOO_FEW_ITEMS
    assert not requests(filled, "ScoreGraph")
    assert isinstance(error, errors.RankingInvalid)  # which clients do not repeat
    assert "fewer texts or images" in error.message


async def test_an_inapplicable_neighbour_order_is_not_a_degradation(filled: Stack) -> None:
    """A search for texts by a text, and one that finds nothing."""
    async with door(filled) as stub:
        texts = search(target_modality=content_pb2.MODALITY_TEXT)
        nothing = search(filter_text="style = none")
        found = [await answer(stub, request) for request in (texts, nothing)]
        error = await refusal(
            answer(stub, search(target_modality="MODALITY_TEXT", neighbours_required=True))
        )

    for each in found:
        assert each.neighbours.stop == pb.NEIGHBOUR_STOP_NOT_APPLICABLE
        assert not each.degradations
    assert isinstance(error, errors.RankingInvalid)


async def test_searches_at_once_share_the_first_description(filled: Stack) -> None:
    """After a start no model is known yet: both searches wait for the answer to one question."""

    async def take_a_while(request: object) -> None:
        await asyncio.sleep(0.05)

    for shard in filled.shards:
        shard.before["DescribeModel"] = take_a_while
    async with door(filled) as stub:
        found = await asyncio.gather(
            *(answer(stub, search(neighbours_required=True)) for _ in range(3))
        )

    assert {each.neighbours.stop for each in found} == {pb.NEIGHBOUR_STOP_COMPLETE}
    assert len(requests(filled, "DescribeModel")) == 1


async def test_rerank_services_that_do_not_answer_are_not_without_a_model(filled: Stack) -> None:
    """They may have one: the search says that they are unavailable, and a retry may succeed."""
    for shard in filled.shards:
        shard.before["DescribeModel"] = raising(errors.InternalFault(why="a bug"))
    async with door(filled) as stub:
        found = await answer(stub, search())
        error = await refusal(answer(stub, search(neighbours_required=True)))

    assert found.neighbours.stop == pb.NEIGHBOUR_STOP_UNAVAILABLE
    assert isinstance(error, errors.NeighboursUnavailable)


async def test_of_both_modalities_the_other_is_ordered(filled: Stack) -> None:
    """Texts found by a text stay as retrieved."""
    async with door(filled) as stub:
        found = await answer(stub, search(all_modalities_included=True, return_n=16))

    kinds = {
        item.modality for item in found.items if item.ordered_by == pb.ORDERING_STAGE_NEIGHBOURS
    }
    assert found.neighbours.scored_count == 4
    assert kinds == {content_pb2.MODALITY_IMAGE}
