"""SearchService over a real socket: streams that keep order and pace, errors that keep names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import pytest

from orchestrator_svc.consistency_token import read_tokens
from tandem import errors
from tandem.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
    filter_to_proto,
)
from tandem.attributes import Attributes
from tandem.chassis.status import error_from_rpc
from tandem.filters import Exists, InRange, OneOf
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.orchestrator_svc.downstream import Stack, door, raising, stack

TIMEOUT_SECONDS = 20


def batch(items: dict[str, str], index_id: str = "scenes") -> pb.IngestItemsRequest:
    """Returns a batch of texts by item id."""
    return pb.IngestItemsRequest(
        index_id=index_id,
        items=[
            index_pb.Item(item_id=item_id, content=content_pb2.Content(text=text))
            for item_id, text in items.items()
        ],
    )


def query(**fields: object) -> pb.SearchItemsRequest:
    """Returns a search for texts near 1 degree."""
    content = content_pb2.Content(text="1")
    return pb.SearchItemsRequest(
        **({"index_id": "scenes", "query": content, "target_modality": "MODALITY_TEXT"} | fields)  # type: ignore[arg-type]
    )


def reasons(response: pb.IngestItemsResponse) -> list[str | None]:
    """Returns each item's reason, or None where stored."""
    return [
        error_reason_pb2.ErrorReason.Name(result.error.reason).removeprefix("ERROR_REASON_")
        if result.HasField("error")
        else None
        for result in response.results
    ]


def text_of(behind: Stack, item_id: str) -> str:
    """Returns what is stored under the id."""
    shard = behind.shards[behind.shard_map.owner("scenes", item_id)]
    return shard.items["scenes"][item_id].content.text


async def until(condition: Callable[[], object]) -> None:
    """Waits for what other tasks bring about."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (the fakes have no events to wait for)
            await asyncio.sleep(0.01)


async def refused(call: grpc.aio.Call) -> errors.TandemError:
    """Returns the named error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "orchestrator")


async def test_what_was_ingested_is_found() -> None:
    """Through one door: ids, ranks, similarities, and contents where asked for."""
    async with stack() as behind, door(behind) as stub:
        call = stub.IngestItems(iter([batch({"a": "0", "b": "30", "c": "60"})]))
        [response] = [each async for each in call]
        found = await stub.SearchItems(query(content_included=True), timeout=TIMEOUT_SECONDS)

    assert [result.item_id for result in response.results] == ["a", "b", "c"]
    assert reasons(response) == [None, None, None]
    assert [item.item_id for item in found.items] == ["a", "b", "c"]
    assert [item.content.text for item in found.items] == ["0", "30", "60"]
    assert [item.retrieve_rank for item in found.items] == [1, 2, 3]
    assert [item.final_rank for item in found.items] == [1, 2, 3]
    assert not any(item.HasField("match_logit") for item in found.items)
    assert found.items[0].similarity == pytest.approx(0.99985, abs=1e-4)
    assert found.model_fingerprint == "model-a"
    assert found.durations.total_duration.ToNanoseconds() > 0


async def test_scores_are_told_with_the_items() -> None:
    """A text finds images unless it says otherwise; a scored item has logit and probability."""
    async with stack() as behind, door(behind) as stub:
        picture = index_pb.Item(item_id="p", content=content_pb2.Content(image=b"3"))
        request = pb.IngestItemsRequest(index_id="scenes", items=[picture])
        assert [each async for each in stub.IngestItems(iter([request]))]
        for shard in behind.shards:
            shard.logits["p"] = 0.0

        found = await stub.SearchItems(query(target_modality=0), timeout=TIMEOUT_SECONDS)
        plain = await stub.SearchItems(
            query(target_modality=0, rerank_disabled=True), timeout=TIMEOUT_SECONDS
        )

    [item] = found.items
    assert (item.match_logit, item.match_probability) == (0.0, 0.5)
    assert item.HasField("match_logit")
    assert not plain.items[0].HasField("match_logit")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (query(index_id="unheard-of"), errors.IndexNotFound),
        (query(index_id="Scenes"), errors.IndexIdInvalid),
        (query(query=content_pb2.Content()), errors.ContentMissing),
        (query(retrieve_k=0), errors.KOutOfRange),
        (query(rerank_k=201), errors.KOutOfRange),
        (query(retrieve_k=5, return_n=6), errors.KOutOfRange),
    ],
)
async def test_a_search_is_refused_by_name(
    request_: pb.SearchItemsRequest, error: type[errors.TandemError]
) -> None:
    """Each before or after the stage that can know it."""
    async with stack() as behind, door(behind) as stub:
        assert isinstance(await refused(stub.SearchItems(request_, timeout=5)), error)


async def test_the_callers_deadline_is_the_searchs() -> None:
    """And where the caller sets none, the setting's."""

    async def stall(request: object) -> None:
        await asyncio.sleep(30)

    async with stack() as behind, door(behind, timeout_seconds=0.3) as stub:
        behind.encoder.before["EncodeContents"] = stall
        start_time = time.monotonic()

        assert isinstance(
            await refused(stub.SearchItems(query(), timeout=0.3)), errors.DeadlineExceeded
        )
        assert isinstance(await refused(stub.SearchItems(query())), errors.DeadlineExceeded)
        assert time.monotonic() - start_time < 5


async def test_removed_items_are_gone_and_counted_once() -> None:
    """From whichever shard has them; an id given twice or never stored counts not."""
    async with stack() as behind, door(behind) as stub:
        items = {f"item-{n}": str(n) for n in range(10)}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]

        response = await stub.RemoveItems(
            pb.RemoveItemsRequest(
                index_id="scenes", item_ids=["item-0", "item-1", "item-2", "item-1", "never"]
            ),
            timeout=TIMEOUT_SECONDS,
        )
        found = await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)

    assert response.removed_count == 3
    assert {item.item_id for item in found.items} == {f"item-{n}" for n in range(3, 10)}


async def test_removing_from_a_shard_that_does_not_know_the_index_removes_nothing() -> None:
    """None of the index's items ever came to it: that is no error."""
    async with stack() as behind, door(behind) as stub:
        here, there = behind.id_on(0), behind.id_on(1)
        assert [each async for each in stub.IngestItems(iter([batch({here: "0"})]))]

        response = await stub.RemoveItems(
            pb.RemoveItemsRequest(index_id="scenes", item_ids=[here, there]), timeout=5
        )

    assert response.removed_count == 1


@pytest.mark.parametrize(
    ("index_id", "item_ids", "error"),
    [
        ("scenes", [], errors.BatchSizeOutOfRange),
        ("scenes", [str(n) for n in range(257)], errors.BatchSizeOutOfRange),
        ("scenes", ["good", ""], errors.ItemIdInvalid),
        ("Scenes", ["good"], errors.IndexIdInvalid),
    ],
)
async def test_a_removal_is_refused_by_name(
    index_id: str, item_ids: Sequence[str], error: type[errors.TandemError]
) -> None:
    """Before any shard is asked."""
    async with stack() as behind, door(behind) as stub:
        request = pb.RemoveItemsRequest(index_id=index_id, item_ids=item_ids)

        assert isinstance(await refused(stub.RemoveItems(request, timeout=5)), error)
        assert not any(shard.calls for shard in behind.shards)


async def test_batches_are_answered_in_order() -> None:
    """Though the first takes longest to encode."""

    async def first_is_slow(request: object) -> None:
        if request.contents[0].text == "0":  # type: ignore[attr-defined]
            await asyncio.sleep(0.3)

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = first_is_slow
        batches = [batch({f"item-{n}": str(n)}) for n in range(6)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

    assert [answer.results[0].item_id for answer in answers] == [f"item-{n}" for n in range(6)]


async def test_a_later_batch_never_overtakes_an_earlier_one() -> None:
    """One id in every batch, the first of them slowest: the last one's text is what stays."""

    async def earlier_is_slower(request: object) -> None:
        await asyncio.sleep(0.3 - 0.1 * float(request.contents[0].text))  # type: ignore[attr-defined]

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = earlier_is_slower
        batches = [batch({"same": str(n)}) for n in range(4)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

        assert [reasons(answer) for answer in answers] == [[None]] * 4
        shard = behind.shards[behind.shard_map.owner("scenes", "same")]
        stored = [
            request.items[0].content.text  # type: ignore[attr-defined]
            for request in shard.requests("UpsertItems")
        ]
        assert stored == ["0", "1", "2", "3"]
        assert text_of(behind, "same") == "3"


async def test_a_batch_that_stored_nothing_lets_none_overtake_the_one_before() -> None:
    """Slow, failed, fast: the fast one still waits for the slow one."""

    async def slow_failed_fast(request: object) -> None:
        text = request.contents[0].text  # type: ignore[attr-defined]
        if text == "1":
            await asyncio.sleep(0.4)
        if text == "2":
            raise errors.Overloaded(what="encodings")

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = slow_failed_fast
        batches = [batch({"same": text}) for text in ("1", "2", "3")]

        answers = [each async for each in stub.IngestItems(iter(batches))]

        assert [reasons(answer) for answer in answers] == [[None], ["OVERLOADED"], [None]]
        assert text_of(behind, "same") == "3"


async def test_batches_are_encoded_side_by_side() -> None:
    """As many as the setting allows and no more, though more were sent."""
    together = most = 0

    async def count(request: object) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.1)
        together -= 1

    async with stack() as behind, door(behind, pending_batch_count=3) as stub:
        behind.encoder.before["EncodeContents"] = count
        batches = [batch({f"item-{n}": str(n)}) for n in range(9)]

        answers = [each async for each in stub.IngestItems(iter(batches))]

    assert len(answers) == 9
    assert most == 3


async def test_streams_share_the_encoders_turns() -> None:
    """So many batches at once of all streams; a batch's time begins with its turn."""
    together = most = 0

    async def count(request: object) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.2)
        together -= 1

    async def answers_of(stub: SearchServiceStub, stream: int) -> list[pb.IngestItemsResponse]:
        batches = [batch({f"item-{stream}-{n}": str(n)}) for n in range(4)]
        return [each async for each in stub.IngestItems(iter(batches))]

    # Of eight batches, two at once, the last two wait for 0.6 s: longer than each has.
    async with stack(batch_timeout_seconds=0.5, encode_batch_count=2) as behind:
        behind.encoder.before["EncodeContents"] = count
        async with door(behind) as stub:
            streams = await asyncio.gather(*(answers_of(stub, stream) for stream in range(2)))

    assert most == 2
    assert [reasons(answer) for answers in streams for answer in answers] == [[None]] * 8


async def test_a_fast_sender_is_held_back() -> None:
    """While nothing can be stored, only a bounded part of an endless stream is taken."""
    gate = asyncio.Event()
    sent = 0

    async def closed(request: object) -> None:
        await gate.wait()

    # Large batches, so that gRPC's own windows hold few of them.
    words = "0 " + "word " * 200_000

    async def endless() -> AsyncIterator[pb.IngestItemsRequest]:
        nonlocal sent
        while True:
            yield batch({f"item-{sent}": words})
            sent += 1

    async with stack() as behind, door(behind, pending_batch_count=2) as stub:
        behind.encoder.before["EncodeContents"] = closed
        call = stub.IngestItems(endless())
        await until(lambda: len(behind.encoder.calls) == 2)
        await asyncio.sleep(0.5)
        held_at = sent
        await asyncio.sleep(0.5)

        assert len(behind.encoder.calls) == 2
        assert sent == held_at < 30
        call.cancel()
        gate.set()


async def test_a_sender_may_wait_for_each_answer_before_the_next_batch() -> None:
    """The stream is answered batch by batch, not at its end."""
    async with stack() as behind, door(behind, pending_batch_count=1) as stub:
        call = stub.IngestItems(timeout=TIMEOUT_SECONDS)
        for n in range(5):
            await call.write(batch({f"item-{n}": str(n)}))
            response = await call.read()
            assert [result.item_id for result in response.results] == [f"item-{n}"]
            assert text_of(behind, f"item-{n}") == str(n)
        await call.done_writing()

        assert await call.read() is grpc.aio.EOF


async def test_a_sender_may_read_nothing_until_it_has_sent_everything() -> None:
    """More batches than may be under way, all written before the first answer is read."""
    async with stack() as behind, door(behind, pending_batch_count=2) as stub:
        call = stub.IngestItems(timeout=TIMEOUT_SECONDS)
        for n in range(12):
            await call.write(batch({f"item-{n}": str(n)}))
        await call.done_writing()

        answers = [each async for each in call]

    assert len(answers) == 12


async def test_an_empty_stream_has_no_answers() -> None:
    """And ends well."""
    async with stack() as behind, door(behind) as stub:
        assert [each async for each in stub.IngestItems(iter([]))] == []


async def test_items_that_fail_do_not_end_the_stream() -> None:
    """A shard without room, an item without content, an id twice: each told, the rest stored."""
    async with stack() as behind, door(behind) as stub:
        behind.shards[1].before["UpsertItems"] = raising(errors.StoreFull(why="disk full"))
        here, there = behind.id_on(0), behind.id_on(1)
        twice = batch({"x": "1"})
        twice.items.append(twice.items[0])
        twice.items.add(item_id="bare")

        first, second, third = [
            each
            async for each in stub.IngestItems(
                iter([batch({here: "0", there: "0"}), twice, batch({here: "5"})])
            )
        ]

        assert reasons(first) == [None, "STORE_FULL"]
        assert reasons(second) == ["ITEM_ID_DUPLICATE", "ITEM_ID_DUPLICATE", "CONTENT_MISSING"]
        assert reasons(third) == [None]
        assert text_of(behind, here) == "5"


async def test_a_batch_refused_whole_ends_the_stream_after_those_before_it() -> None:
    """The first is answered and stored; of the third nothing is, in whatever order they ended."""

    async def slow(request: object) -> None:
        await asyncio.sleep(0.3 if request.contents[0].text == "1" else 0.0)  # type: ignore[attr-defined]

    async with stack() as behind, door(behind) as stub:
        behind.encoder.before["EncodeContents"] = slow
        batches = [batch({"a": "1"}), batch({"b": "2"}, index_id="Scenes"), batch({"c": "3"})]
        call = stub.IngestItems(iter(batches))

        first = await call.read()
        error = await refused(call.read())

        assert reasons(first) == [None]
        assert isinstance(error, errors.IndexIdInvalid)
        await asyncio.sleep(0.1)
        stored = {each for shard in behind.shards for each in shard.items.get("scenes", {})}
        assert stored == {"a"}


@pytest.mark.parametrize("count", [0, 65])
async def test_a_batch_of_a_size_that_is_not_taken_ends_the_stream_by_name(count: int) -> None:
    """Nothing can be said of its items."""
    async with stack() as behind, door(behind) as stub:
        call = stub.IngestItems(iter([batch({f"item-{n}": "0" for n in range(count)})]))

        assert isinstance(await refused(call.read()), errors.BatchSizeOutOfRange)


async def test_a_sender_that_goes_away_leaves_nothing_running() -> None:
    """Batches not yet stored are dropped, and the service serves on."""

    async def stall(request: object) -> None:
        await asyncio.sleep(30)

    async with stack() as behind, door(behind) as stub:
        # Connected from here on; a connection is watched by a task of the service's.
        assert [each async for each in stub.IngestItems(iter([batch({"b": "0"})]))]
        behind.encoder.calls.clear()
        before = len(asyncio.all_tasks())
        behind.encoder.before["EncodeContents"] = stall
        call = stub.IngestItems()
        for n in range(3):
            await call.write(batch({f"item-{n}": str(n)}))
        await until(lambda: len(behind.encoder.calls) == 3)

        call.cancel()

        await until(lambda: len(asyncio.all_tasks()) <= before)
        del behind.encoder.before["EncodeContents"]
        assert [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]
        assert text_of(behind, "a") == "0"


async def test_a_sender_that_goes_away_while_answers_wait_does_no_harm() -> None:
    """Answers that nobody reads any more: the stream is closed and the next caller is served."""
    async with stack() as behind, door(behind) as stub:
        for _ in range(10):
            call = stub.IngestItems()
            for n in range(4):
                await call.write(batch({f"item-{n}": str(n)}))
            await call.read()
            call.cancel()
        await asyncio.sleep(0.2)

        assert [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]


def attributed(items: dict[str, Attributes]) -> pb.IngestItemsRequest:
    """Returns a batch of texts with these attributes by item id."""
    request = batch(dict.fromkeys(items, "1"))
    for item, attributes in zip(request.items, items.values(), strict=True):
        for name, message in attributes_to_proto(attributes).items():
            item.attributes[name].CopyFrom(message)
    return request


async def stored(behind: Stack, request: pb.IngestItemsRequest) -> list[str | None]:
    """Ingests one batch and returns each item's reason."""
    async with door(behind) as stub:
        call = stub.IngestItems(iter([request]), timeout=TIMEOUT_SECONDS)
        return reasons(await call.read())


async def test_a_search_finds_what_its_filter_holds_for_on_every_shard() -> None:
    """And the attributes come back with the contents, as they were sent."""
    async with stack() as behind:
        styles = {f"item-{n}": "noto" if n % 2 else "blob" for n in range(20)}
        kept: dict[str, Attributes] = {
            item_id: {"style": style, "count": number, "tags": ("x",)}
            for number, (item_id, style) in enumerate(styles.items())
        }
        assert await stored(behind, attributed(kept | {"without": {}})) == [None] * 21
        noto = filter_to_proto(OneOf("style", ("noto",)) & InRange("count", above=4))

        async with door(behind) as stub:
            found = await stub.SearchItems(
                query(filter=noto, return_n=50, content_included=True), timeout=TIMEOUT_SECONDS
            )
            every = await stub.SearchItems(query(return_n=50), timeout=TIMEOUT_SECONDS)

    assert {item.item_id for item in found.items} == {f"item-{n}" for n in range(5, 20, 2)}
    for item in found.items:
        assert attributes_from_proto(item.attributes) == kept[item.item_id]
    assert len(every.items) == 21
    assert not any(item.attributes for item in every.items)


async def test_an_item_with_a_bad_attribute_fails_alone() -> None:
    """By its name, and those beside it are stored."""
    async with stack() as behind:
        request = attributed({"a": {"n": 1}, "b": {"a b": 1}, "c": {}, "d": {"n": float("nan")}})
        request.items[2].attributes["unset"].SetInParent()

        outcomes = await stored(behind, request)

        assert outcomes == [None, *["ATTRIBUTE_INVALID"] * 3]
        assert text_of(behind, "a") == "1"
        assert {i for shard in behind.shards for i in shard.items.get("scenes", {})} == {"a"}


async def test_a_bad_filter_is_refused_at_the_door() -> None:
    """Before any service behind is asked."""
    async with stack() as behind, door(behind) as stub:
        request = query(filter=filter_to_proto(Exists("a")))
        request.filter.exists = "a b"

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SearchItems(request, timeout=TIMEOUT_SECONDS)

        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(error_from_rpc(caught.value, "search"), errors.FilterInvalid)
        assert not behind.encoder.calls
        assert not any(shard.calls for shard in behind.shards)


async def test_coverage_is_on_the_wire() -> None:
    """Whole, and without a shard; demanding all of it is refused by name."""
    async with stack() as behind, door(behind) as stub:
        items = {behind.id_on(0): "0", behind.id_on(1): "1"}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]

        whole = (await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)).coverage
        await behind.stop_shard(1)
        part = (await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)).coverage
        error = await refused(
            stub.SearchItems(query(full_coverage_required=True), timeout=TIMEOUT_SECONDS)
        )

    assert whole == pb.Coverage(
        answered_shard_count=2, shard_count=2, covered_item_count=2, item_count=2
    )
    assert part == pb.Coverage(
        answered_shard_count=1,
        shard_count=2,
        covered_item_count=1,
        item_count=2,
        missing_shards=[
            pb.MissingShard(
                shard_number=1, reason=error_reason_pb2.ERROR_REASON_SERVICE_UNAVAILABLE
            )
        ],
    )
    assert isinstance(error, errors.ShardsMissing)
    assert error.metadata["missing_shards"] == "1"


async def test_a_total_that_nobody_knows_is_unset() -> None:
    """Not zero."""
    async with stack() as behind, door(behind) as stub:
        items = {behind.id_on(0): "0"}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]
        await behind.stop_shard(1)

        coverage = (await stub.SearchItems(query(), timeout=TIMEOUT_SECONDS)).coverage

    assert not coverage.HasField("item_count")
    assert coverage.covered_item_count == 1


async def test_a_streams_last_token_covers_its_batches() -> None:
    """Two batches, each on a shard of its own: the second's token makes both shards wait."""
    async with stack() as behind, door(behind) as stub:
        batches = [batch({behind.id_on(0): "0"}), batch({behind.id_on(1): "1"})]

        first, last = [each async for each in stub.IngestItems(iter(batches))]
        found = await stub.SearchItems(
            query(consistency_tokens=[last.consistency_token]), timeout=TIMEOUT_SECONDS
        )

        assert len(found.items) == 2
        assert read_tokens([first.consistency_token], behind.shard_map) == {0: 1}
        assert read_tokens([last.consistency_token], behind.shard_map) == {0: 1, 1: 1}
        assert [
            shard.requests("SearchEmbeddings")[-1].minimum_sequence  # type: ignore[attr-defined]
            for shard in behind.shards
        ] == [1, 1]


async def test_a_search_by_token_never_answers_from_before_the_write() -> None:
    """A shard that was put back behind it: named, not answered without the item."""
    async with stack(shard_count=1) as behind, door(behind) as stub:
        [response] = [each async for each in stub.IngestItems(iter([batch({"a": "0"})]))]
        del behind.shards[0].items["scenes"]["a"]
        behind.shards[0].sequence = 0

        request = query(consistency_tokens=[response.consistency_token])
        error = await refused(stub.SearchItems(request, timeout=TIMEOUT_SECONDS))

    assert isinstance(error, errors.SequenceNotReached)
    assert error.metadata == {"minimum_sequence": "1", "applied_sequence": "0"}


async def test_a_removals_token_names_what_it_touched() -> None:
    """And one that touched nothing is a token all the same."""
    async with stack() as behind, door(behind) as stub:
        item_id = behind.id_on(1)
        assert [each async for each in stub.IngestItems(iter([batch({item_id: "0"})]))]

        touched = await stub.RemoveItems(
            pb.RemoveItemsRequest(index_id="scenes", item_ids=[item_id]), timeout=5
        )
        untouched = await stub.RemoveItems(
            pb.RemoveItemsRequest(index_id="nowhere", item_ids=["a"]), timeout=5
        )

        tokens = [touched.consistency_token, untouched.consistency_token]
        assert [read_tokens([token], behind.shard_map) for token in tokens] == [{1: 2}, {}]
        found = await stub.SearchItems(query(consistency_tokens=tokens), timeout=TIMEOUT_SECONDS)
        assert not found.items


async def test_a_bad_token_is_refused_by_name_on_the_wire() -> None:
    """As a caller sees it."""
    async with stack(shard_count=1) as behind, door(behind) as stub:
        call = stub.SearchItems(query(consistency_tokens=["made up"]), timeout=5)

        assert isinstance(await refused(call), errors.ConsistencyTokenInvalid)


async def test_request_ids_reach_the_shards() -> None:
    """Of batches and of removals; one that is too long ends the stream by name."""
    async with stack(shard_count=1) as behind, door(behind) as stub:
        for _ in range(2):
            request = batch({"a": "0"})
            request.request_id = "first"
            [response] = [each async for each in stub.IngestItems(iter([request]))]
            assert reasons(response) == [None]
        removal = pb.RemoveItemsRequest(index_id="scenes", item_ids=["a"], request_id="second")
        counts = [(await stub.RemoveItems(removal, timeout=5)).removed_count for _ in range(2)]

        assert counts == [1, 1]
        assert behind.shards[0].sequence == 2
        request.request_id = "x" * 65
        error = await refused(stub.IngestItems(iter([request])).read())
        assert isinstance(error, errors.RequestIdInvalid)
