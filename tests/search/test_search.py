"""Searches over two shards: merged, reranked by shard, and failing with named errors."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tandem import errors
from tandem.contract.content import Content, ImageContent, Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.query import Depth, SearchQuery, WeightedPart
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.downstream import (
    FINGERPRINT,
    Stack,
    door,
    ingest,
    raising,
    stack,
)

ANGLES = range(0, 90, 5)


@pytest.fixture(name="filled")
async def _filled() -> AsyncIterator[Stack]:
    """Two shards with a text and an image at every fifth degree, none yet known to the reranker."""
    async with stack() as behind:
        items = [
            IncomingItem(f"{kind}-{angle}", content)
            for angle in ANGLES
            for kind, content in (
                ("text", TextContent(str(angle))),
                ("image", ImageContent(str(angle).encode())),
            )
        ]
        assert not any((await ingest(behind.ingester, items)).outcomes)
        yield behind


async def search(
    behind: Stack,
    content: Content | None = None,
    *,
    index_id: str = "scenes",
    target: Modality = Modality.IMAGE,
    depth: tuple[int, int, int] = (6, 4, 5),
    rerank_disabled: bool = False,
    content_included: bool = False,
    seconds: float = 10.0,
) -> SearchResult:
    """Searches for what is near 1 degree."""
    query = SearchQuery(
        parts=(WeightedPart(content or TextContent("1")),),
        index_id=index_id,
        target_modality=target,
        depth=Depth(*depth),
        rerank_disabled=rerank_disabled,
        content_included=content_included,
    )
    return await behind.searcher.search(query, Deadline.after(seconds))


def ids(answer: SearchResult) -> list[str]:
    """Returns the items found, best first."""
    return [item.item_id for item in answer.items]


def know(behind: Stack, logits: dict[str, float]) -> None:
    """Has every shard's reranker score these items so."""
    for shard in behind.shards:
        shard.logits.update(logits)


async def test_both_shards_answer_as_one(filled: Stack) -> None:
    """The nearest over all, whichever shard they live on; each shard owns some of them."""
    answer = await search(filled, rerank_disabled=True, depth=(6, 1, 6))

    assert ids(answer) == [f"image-{angle}" for angle in (0, 5, 10, 15, 20, 25)]
    assert len({filled.shard_map.owner("scenes", each) for each in ids(answer)}) == 2
    assert answer.model_fingerprint == FINGERPRINT


async def test_candidates_are_scored_by_the_shard_that_has_them(filled: Stack) -> None:
    """Each is asked once, of its owner, with the query's own tokens and fingerprint."""
    know(filled, {f"image-{angle}": float(angle) for angle in ANGLES})

    answer = await search(filled)

    # Of the six retrieved the first four are reranked, here from far to near; then the fifth.
    assert ids(answer) == ["image-15", "image-10", "image-5", "image-0", "image-20"]
    asked = []
    for number, shard in enumerate(filled.shards):
        for request in shard.requests("ScoreCandidates"):
            assert request.model_fingerprint == FINGERPRINT  # type: ignore[attr-defined]
            for item_id in request.item_ids:  # type: ignore[attr-defined]
                assert filled.shard_map.owner("scenes", item_id) == number
                asked.append(item_id)
    assert sorted(asked) == ["image-0", "image-10", "image-15", "image-5"]


async def test_an_item_deleted_before_its_scoring_ranks_after_scored_ones(filled: Stack) -> None:
    """It was retrieved, so it is returned, without a score."""
    know(filled, {"image-0": 1.0, "image-10": 3.0, "image-15": 2.0})

    answer = await search(filled)

    assert ids(answer) == ["image-10", "image-15", "image-0", "image-5", "image-20"]
    assert answer.items[3].match_logit is None


@pytest.mark.parametrize(
    ("content", "target"),
    [(TextContent("1"), Modality.TEXT), (ImageContent(b"1"), Modality.IMAGE)],
)
async def test_two_of_a_kind_are_not_reranked(
    filled: Stack, content: Content, target: Modality
) -> None:
    """The cross-encoder reads a text and an image; such a search keeps the retrieval order."""
    answer = await search(filled, content, target=target)

    assert ids(answer) == [f"{target.value}-{angle}" for angle in (0, 5, 10, 15, 20)]
    assert not any(shard.requests("ScoreCandidates") for shard in filled.shards)
    assert answer.seconds.rerank == 0.0


@pytest.mark.parametrize("target", Modality)
@pytest.mark.parametrize("content", [TextContent("1"), ImageContent(b"1")])
async def test_shards_get_the_querys_modality(
    filled: Stack, content: Content, target: Modality
) -> None:
    """They measure recall by direction, which the embedding does not show."""
    await search(filled, content, target=target)

    for shard in filled.shards:
        [request] = shard.requests("SearchEmbeddings")
        assert MODALITY_WIRE.from_proto(request.query_modality) is content.modality  # type: ignore[attr-defined]
        assert MODALITY_WIRE.from_proto(request.modality) is target  # type: ignore[attr-defined]


async def test_attributes_are_returned_without_contents() -> None:
    """On the first page and on the next, from a shard that leaves contents out, or sends them."""
    async with stack(shard_count=1) as behind:
        items = [
            IncomingItem(f"item-{n}", ImageContent(b"%d" % n), {"number": n}) for n in range(3)
        ]
        await ingest(behind.ingester, items)
        async with door(behind) as stub:
            request = pb.SearchItemsRequest(
                index_id="scenes", query={"text": "0"}, return_n=2, attributes_included=True
            )
            first = await stub.SearchItems(request)
            turn = pb.SearchItemsRequest(
                index_id="scenes", cursor=first.next_cursor, attributes_included=True
            )
            second = await stub.SearchItems(turn)
            request.attributes_included = False
            bare = await stub.SearchItems(request)

    found = [*first.items, *second.items]
    assert [item.attributes["number"].integer for item in found] == [0, 1, 2]
    assert not any(item.HasField("content") for item in found)
    assert not any(item.attributes for item in bare.items)
    requests = behind.shards[0].requests("GetItems")
    assert [request.content_excluded for request in requests] == [True, True]  # type: ignore[attr-defined]


async def test_contents_beyond_one_response_are_requested_in_parts() -> None:
    """GetItems takes 256 ids; a search may return 1,000."""
    async with stack(shard_count=1) as behind:
        items = [IncomingItem(f"i{n:03}", TextContent(f"{n / 10}")) for n in range(320)]
        for start in range(0, 320, 64):
            await ingest(behind.ingester, items[start : start + 64])

        answer = await search(
            behind,
            target=Modality.TEXT,
            depth=(1000, 1, 1000),
            content_included=True,
        )

        assert len(answer.items) == sum(item.content is not None for item in answer.items) == 320
        sizes = [len(request.item_ids) for request in behind.shards[0].requests("GetItems")]  # type: ignore[attr-defined]
        assert sizes == [256, 64]


async def test_an_index_that_no_shard_knows_is_not_found(filled: Stack) -> None:
    with pytest.raises(errors.IndexNotFound, match="nowhere"):
        await search(filled, index_id="nowhere")

    assert all(shard.requests("SearchEmbeddings") for shard in filled.shards)


async def test_an_index_that_one_shard_does_not_know_is_empty_there() -> None:
    """It never had an item of the index, so the other shard's answer is complete."""
    async with stack() as behind:
        item_id = behind.id_on(1)
        await ingest(behind.ingester, [IncomingItem(item_id, ImageContent(b"3"))])
        know(behind, {item_id: 0.5})

        answer = await search(behind, content_included=True)

        assert behind.shards[0].items == {}
        assert ids(answer) == [item_id]
        assert [item.content for item in answer.items] == [ImageContent(b"3")]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("SearchEmbeddings", errors.ModelMismatch(request="a", index="b")),
        ("ScoreCandidates", errors.TokensInvalid(why="they are of another model")),
        ("GetItems", errors.ItemCorrupt(item_id="a", why="its checksum is wrong")),
    ],
)
async def test_an_error_of_one_shard_is_that_of_the_search(
    filled: Stack, method: str, error: errors.TandemError
) -> None:
    """The shard's own error is raised: a partial answer would look complete."""
    know(filled, {f"image-{angle}": 0.0 for angle in ANGLES})
    filled.shards[1].before[method] = raising(error)

    with pytest.raises(type(error)) as caught:
        await search(filled, content_included=True)

    assert caught.value.message == error.message


async def test_one_shards_failure_does_not_wait_for_the_other(filled: Stack) -> None:
    """The other call is cancelled, and the caller gets the error at once."""

    async def stall(request: object) -> None:
        await asyncio.sleep(30)

    filled.shards[0].before["SearchEmbeddings"] = stall
    filled.shards[1].before["SearchEmbeddings"] = raising(errors.Overloaded(what="searches"))

    async with asyncio.timeout(60):
        with pytest.raises(errors.Overloaded):
            await search(filled)


async def test_a_bad_index_id_is_refused_before_anything_is_encoded(filled: Stack) -> None:
    encoded = len(filled.encoder.calls)

    with pytest.raises(errors.IndexIdInvalid):
        await search(filled, index_id="Scenes")

    assert len(filled.encoder.calls) == encoded


@pytest.mark.parametrize("method", ["EncodeContents", "SearchEmbeddings"])
async def test_no_stage_gets_more_than_the_remaining_time(filled: Stack, method: str) -> None:
    """Whichever stage stalls, the search ends by the caller's deadline with its error."""

    async def stall(request: object) -> None:
        await asyncio.sleep(600)

    filled.encoder.before[method] = stall
    for shard in filled.shards:
        shard.before[method] = stall

    async with asyncio.timeout(90):
        with pytest.raises(errors.DeadlineExceeded):
            await search(filled, seconds=0.5)


async def test_a_deadline_that_passed_starts_nothing(filled: Stack) -> None:
    encoded = len(filled.encoder.calls)

    with pytest.raises(errors.DeadlineExceeded):
        await search(filled, seconds=0.0)

    assert len(filled.encoder.calls) == encoded
