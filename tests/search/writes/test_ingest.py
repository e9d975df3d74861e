"""Ingest of one batch: every item has its own outcome, and a failing shard fails only its own."""

import asyncio
from dataclasses import replace

import pytest

from tandem import errors
from tandem.contract.content import ImageContent, TextContent, TextUse, TruncationPolicy
from tandem.contract.search.ingest import IncomingItem, IngestBatch, Outcomes
from tandem.search.writes.ingest import Ingested
from tandem.v1 import content_pb2
from tests.support.orchestrator_svc import downstream
from tests.support.orchestrator_svc.downstream import FINGERPRINT, Stack, raising, stack


def text(item_id: str, angle: int = 0) -> IncomingItem:
    """Returns a text item."""
    return IncomingItem(item_id, TextContent(str(angle)))


async def ingest(behind: Stack, items: list[IncomingItem], index_id: str = "scenes") -> Outcomes:
    """Ingests a batch and returns its outcomes."""
    return (await downstream.ingest(behind.ingester, items, index_id=index_id)).outcomes


def reasons(outcomes: Outcomes) -> list[str | None]:
    """Returns each outcome's reason, or None where stored."""
    return [error and error.reason for error in outcomes]  # type: ignore[misc]


def stored(behind: Stack) -> set[str]:
    """Returns the ids on all shards."""
    return {item_id for shard in behind.shards for item_id in shard.items.get("scenes", {})}


async def test_items_are_stored_whole_on_the_shard_that_owns_them() -> None:
    async with stack() as behind:
        items = [text(f"item-{n}", n) for n in range(20)]
        items.append(IncomingItem("picture", ImageContent(b"7")))

        outcomes = await ingest(behind, items)

        assert outcomes == [None] * 21
        assert stored(behind) == {item.item_id for item in items}
        for number, shard in enumerate(behind.shards):
            [request] = shard.requests("UpsertItems")
            assert request.model_fingerprint == FINGERPRINT  # type: ignore[attr-defined]
            for item_id, item in shard.items["scenes"].items():
                assert behind.shard_map.owner("scenes", item_id) == number
                assert item.embedding.values
                assert item.tokens.WhichOneof("tokens") == item.content.WhichOneof("data")


async def test_invalid_items_are_refused_item_by_item() -> None:
    async with stack() as behind:
        behind.encoder.refused["13 unlucky"] = errors.TextTooLong(
            got=9000, limit=8192, unit="bytes"
        )
        items = [
            text("good"),
            text(""),
            text("x" * 257),
            text("nul\0"),
            IncomingItem("empty", errors.ContentMissing()),
            IncomingItem("refused", TextContent("13 unlucky")),
            text("also-good"),
        ]

        outcomes = await ingest(behind, items)

        bad_id = "ITEM_ID_INVALID"
        assert reasons(outcomes) == [
            *(None, bad_id, bad_id, bad_id, "CONTENT_MISSING", "TEXT_TOO_LONG", None)
        ]
        assert stored(behind) == {"good", "also-good"}
        [request] = behind.encoder.requests("EncodeContents")
        assert len(request.contents) == 3  # type: ignore[attr-defined]


async def test_of_items_with_one_id_the_last_that_can_be_stored_is() -> None:
    """As if they had come in batches of their own."""
    async with stack() as behind:
        bad = IncomingItem("twice", errors.ContentMissing())
        items = [text("twice", 1), text("once"), text("twice", 2), bad]
        outcomes = await ingest(behind, items)

        assert reasons(outcomes) == ["ITEM_ID_DUPLICATE", None, None, "CONTENT_MISSING"]
        assert stored(behind) == {"once", "twice"}
        [kept] = [
            shard.items["scenes"]["twice"]
            for shard in behind.shards
            if "twice" in shard.items["scenes"]
        ]
        assert kept.content.text == "2"


async def test_a_batch_without_a_valid_item_calls_no_service() -> None:
    async with stack() as behind:
        outcomes = await ingest(behind, [text(""), IncomingItem("a", errors.ContentMissing())])

        assert reasons(outcomes) == ["ITEM_ID_INVALID", "CONTENT_MISSING"]
        assert behind.encoder.calls == []
        assert not any(shard.calls for shard in behind.shards)


@pytest.mark.parametrize("shard_count", [2, 3])
async def test_a_shard_that_fails_fails_only_its_own_items(shard_count: int) -> None:
    async with stack(shard_count) as behind:
        behind.shards[1].before["UpsertItems"] = raising(errors.StoreFull(why="disk full"))
        items = [text(f"item-{n}") for n in range(30)]

        outcomes = await ingest(behind, items)

        for item, error in zip(items, outcomes, strict=True):
            is_on_failing = behind.shard_map.owner("scenes", item.item_id) == 1
            assert isinstance(error, errors.StoreFull) if is_on_failing else error is None
            assert (item.item_id in stored(behind)) is not is_on_failing


async def test_attributes_that_an_engine_cannot_hold_refuse_their_item_alone() -> None:
    """Also under a request id, whose repetition stores nothing again."""
    async with stack() as behind:
        own = [behind.id_on(1, start=f"item-{n}") for n in range(9)]
        items = [replace(text(each), attributes={"n": n}) for n, each in enumerate(own)]

        async def engine(request: object) -> None:
            if {3, 8} & {each.attributes["n"].integer for each in request.items}:  # type: ignore[attr-defined]
                raise errors.AttributeInvalid(why="n is 3 or 8")

        behind.shards[1].before["UpsertItems"] = engine
        for _ in range(2):
            done = await downstream.ingest(behind.ingester, items, request_id="mine")
            refused = [n for n, error in enumerate(done.outcomes) if error is not None]
            assert refused == [3, 8]
        assert len(behind.shards[1].items["scenes"]) == 7
        assert behind.shards[1].sequence == done.sequences[1] <= 6
        assert len(behind.encoder.requests("EncodeContents")) == 2


async def test_items_of_an_absent_shard_are_encoded_once_until_it_is_back() -> None:
    """A client sends them again and again; those of the other shard are stored meanwhile."""
    async with stack() as behind:
        items = [text(f"item-{n}", n) for n in range(30)]
        own = [behind.shard_map.owner("scenes", item.item_id) == 1 for item in items]
        is_away = True

        async def away(request: object) -> None:
            if is_away:
                raise errors.ServiceUnavailable(service="index", why="it restarts")

        for method in ("UpsertItems", "ReadNotes"):
            behind.shards[1].before[method] = away

        for attempt in range(3):
            outcomes = await ingest(behind, items)
            assert [error is not None for error in outcomes] == own, attempt
        is_away = False
        assert await ingest(behind, items) == [None] * 30

        encoded = [len(each.contents) for each in behind.encoder.requests("EncodeContents")]  # type: ignore[attr-defined]
        assert encoded == [30, own.count(False), own.count(False), 30]


async def test_an_encoder_that_fails_fails_the_batch_item_by_item() -> None:
    """The stream continues; an item that was refused for itself keeps its own reason."""
    async with stack() as behind:
        behind.encoder.before["EncodeContents"] = raising(
            errors.ModelUnavailable(model="joint_encoder", why="gone")
        )

        outcomes = await ingest(behind, [text("a"), text(""), text("b")])

        assert reasons(outcomes) == ["MODEL_UNAVAILABLE", "ITEM_ID_INVALID", "MODEL_UNAVAILABLE"]
        assert stored(behind) == set()


@pytest.mark.parametrize("service", ["encoder", "shard"])
async def test_a_batch_does_not_wait_for_ever(service: str) -> None:
    """A service that stalls is a deadline exceeded for the items that waited for it."""

    async def stall(request: object) -> None:
        await asyncio.sleep(30)

    async with stack(batch_timeout_seconds=0.3) as behind:
        behind.encoder.before.update({"EncodeContents": stall} if service == "encoder" else {})
        behind.shards[0].before.update({"UpsertItems": stall} if service == "shard" else {})

        outcomes = await ingest(behind, [text(behind.id_on(0))])

        assert reasons(outcomes) == ["DEADLINE_EXCEEDED"]


async def test_an_encoded_batch_is_stored_only_on_request() -> None:
    """So batches of one stream are encoded concurrently and take effect in their order."""
    async with stack() as behind:
        encoded = await behind.ingester.encode(IngestBatch("scenes", [text("a")]))

        assert behind.encoder.calls
        assert stored(behind) == set()

        assert (await behind.ingester.store(encoded)).outcomes == [None]
        assert stored(behind) == {"a"}


@pytest.mark.parametrize("count", [0, 65])
async def test_a_batch_of_an_invalid_size_is_refused_whole(count: int) -> None:
    async with stack() as behind:
        with pytest.raises(errors.BatchSizeOutOfRange):
            await ingest(behind, [text(f"item-{n}") for n in range(count)])


async def attempt(behind: Stack, items: list[IncomingItem], request_id: str) -> Ingested:
    """Ingests a batch under a request id."""
    return await downstream.ingest(behind.ingester, items, request_id=request_id)


async def test_a_repeated_batch_is_the_same_writes_and_stored_once() -> None:
    """Two writes over two shards, each recognised by its own id; sequences as the first time."""
    async with stack() as behind:
        items = [text(f"item-{n}", n) for n in range(20)]

        first = await attempt(behind, items, "same")
        again = await attempt(behind, items, "same")

        assert first.outcomes == again.outcomes == [None] * 20
        assert first.sequences == again.sequences == {0: 1, 1: 1}
        request_ids = []
        for shard in behind.shards:
            one, other = shard.requests("UpsertItems")
            assert one == other
            assert len(one.request_id) == 32  # type: ignore[attr-defined]
            assert shard.sequence == 1
            request_ids.append(one.request_id)  # type: ignore[attr-defined]
        assert request_ids[0] != request_ids[1]


async def test_a_batch_half_stored_is_finished_by_its_repetition() -> None:
    """The shard that stored its part does not store it again; the one that was full does now."""
    async with stack() as behind:
        items = [text(behind.id_on(0)), text(behind.id_on(1))]
        behind.shards[1].before["UpsertItems"] = raising(errors.StoreFull(why="disk full"))

        first = await attempt(behind, items, "same")
        del behind.shards[1].before["UpsertItems"]
        second = await attempt(behind, items, "same")

        assert reasons(first.outcomes) == [None, "STORE_FULL"]
        assert first.sequences == {0: 1}
        assert reasons(second.outcomes) == [None, None]
        assert [shard.sequence for shard in behind.shards] == [1, 1]


async def test_another_model_answer_is_still_the_same_write() -> None:
    """Two encodings of one image may differ in their last bits, so a write is known by what the
    caller sent: the contract that index_svc is held to.
    """
    async with stack(shard_count=1) as behind:
        first = await attempt(behind, [text("a", 1)], "same")
        [stored_request] = behind.shards[0].requests("UpsertItems")

        async def other_bits(request: object) -> None:
            values = bytearray(request.items[0].embedding.values)  # type: ignore[attr-defined]
            values[0] ^= 1
            request.items[0].embedding.values = bytes(values)  # type: ignore[attr-defined]

        behind.shards[0].before["UpsertItems"] = other_bits
        again = await attempt(behind, [text("a", 1)], "same")

        assert again == first
        [_, repeated] = behind.shards[0].requests("UpsertItems")
        assert repeated != stored_request


async def test_a_reused_request_id_is_reported_item_by_item() -> None:
    """A shard that stored the first stores nothing of the second."""
    async with stack(shard_count=1) as behind:
        await attempt(behind, [text("a", 1)], "same")

        refused = await attempt(behind, [text("a", 2), text("b", 2)], "same")

        assert reasons(refused.outcomes) == ["REQUEST_ID_REUSED"] * 2
        assert all("request_id 'same' was" in str(each) for each in refused.outcomes)
        assert refused.sequences == {}
        assert stored(behind) == {"a"}


async def test_a_request_id_that_is_too_long_refuses_the_batch() -> None:
    async with stack(shard_count=1) as behind:
        with pytest.raises(errors.RequestIdInvalid):
            await attempt(behind, [text("a")], "x" * 65)

        assert not behind.encoder.calls


async def test_the_truncation_policy_reaches_the_encoder_and_text_use_is_returned() -> None:
    """Each encoded text reports how much was read, stored or not."""
    async with stack() as behind:
        use = TextUse(100, 64)
        behind.encoder.text_uses["1 long"] = use
        behind.encoder.refused["13 unlucky"] = errors.TextEmpty()
        items = [
            IncomingItem("long", TextContent("1 long")),
            IncomingItem("refused", TextContent("13 unlucky")),
            text("short"),
        ]

        ingested = await downstream.ingest(
            behind.ingester, items, truncation_policy=TruncationPolicy.TRUNCATE
        )

        assert ingested.text_uses == {0: use}
        assert stored(behind) == {"long", "short"}
        [request] = behind.encoder.requests("EncodeContents")
        assert request.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE  # type: ignore[attr-defined]


async def test_an_item_has_no_windows() -> None:
    async with stack() as behind:
        with pytest.raises(errors.TruncationPolicyInvalid, match="split the text"):
            await downstream.ingest(
                behind.ingester, [text("a")], truncation_policy=TruncationPolicy.BEST_WINDOW
            )

        assert not behind.encoder.calls
