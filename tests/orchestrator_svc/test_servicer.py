"""SearchService over a real socket: streams that keep order and pace, errors that keep names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.filtering.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
    filter_to_proto,
)
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.filtering.filters import InRange, OneOf, Value
from tandem.v1 import attribute_pb2, content_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tests.support.orchestrator_svc.caller import (
    TIMEOUT_SECONDS,
    batch,
    query,
    reasons,
    refused,
    stored,
    text_of,
)
from tests.support.orchestrator_svc.downstream import door, stack


async def test_ingested_items_are_found() -> None:
    """Through one server: ids, ranks, similarities, and contents if requested."""
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


async def test_scores_are_returned_with_the_items() -> None:
    """A text finds images by default; a scored item has logit and probability."""
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
        (query(rerank_k=1_001), errors.KOutOfRange),
        (query(retrieve_k=5, return_n=6), errors.KOutOfRange),
    ],
)
async def test_a_search_is_refused_by_name(
    request_: pb.SearchItemsRequest, error: type[errors.TandemError]
) -> None:
    async with stack() as behind, door(behind) as stub:
        assert isinstance(await refused(stub.SearchItems(request_, timeout=60)), error)


async def test_the_callers_deadline_is_the_searchs() -> None:
    """The setting's applies if the caller sets none."""

    async def stall(request: object) -> None:
        await asyncio.sleep(600)

    async with stack() as behind, door(behind, timeout_seconds=0.3) as stub:
        behind.encoder.before["EncodeContents"] = stall

        async with asyncio.timeout(90):
            for call in (stub.SearchItems(query(), timeout=0.3), stub.SearchItems(query())):
                assert isinstance(await refused(call), errors.DeadlineExceeded)


async def test_removed_items_are_gone_and_counted_once() -> None:
    """From whichever shard has them; a repeated or unknown id does not count."""
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


async def test_an_index_is_removed_from_all_shards_call_by_call() -> None:
    """Until nothing is left; then it is not found. A shard that never had it is not an error."""
    async with stack() as behind, door(behind) as stub:
        items = {f"item-{n}": str(n) for n in range(10)}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]
        request, counts = pb.RemoveIndexRequest(index_id="scenes"), []
        while True:
            response = await stub.RemoveIndex(request, timeout=TIMEOUT_SECONDS)
            counts.append(response.removed_count)
            if response.is_complete:
                break

        assert sum(counts) == 10
        assert len(counts) > 1
        assert response.consistency_token
        assert not any(shard.items for shard in behind.shards)
        assert isinstance(
            await refused(stub.RemoveIndex(request, timeout=60)), errors.IndexNotFound
        )
        assert isinstance(
            await refused(stub.RemoveIndex(pb.RemoveIndexRequest(index_id="A"), timeout=60)),
            errors.IndexIdInvalid,
        )


async def test_removing_an_index_reports_items_left_by_a_failed_shard() -> None:
    """With the shard's error; the others' items are removed, and the same call continues."""
    async with stack() as behind, door(behind) as stub:
        items = {behind.id_on(0): "0", behind.id_on(1): "1"}
        assert [each async for each in stub.IngestItems(iter([batch(items)]))]
        await behind.stop_shard(1)

        error = await refused(
            stub.RemoveIndex(pb.RemoveIndexRequest(index_id="scenes"), timeout=60)
        )

    assert isinstance(error, errors.ServiceUnavailable)
    assert "1 items are removed, 1 of 2 shards failed" in error.message


@pytest.mark.parametrize(
    ("index_id", "item_ids", "error"),
    [
        ("scenes", [], errors.BatchSizeOutOfRange),
        ("scenes", [str(n) for n in range(257)], errors.BatchSizeOutOfRange),
        ("scenes", ["good", ""], errors.ItemIdInvalid),
    ],
)
async def test_a_removal_is_refused_by_name(
    index_id: str, item_ids: Sequence[str], error: type[errors.TandemError]
) -> None:
    async with stack() as behind, door(behind) as stub:
        request = pb.RemoveItemsRequest(index_id=index_id, item_ids=item_ids)

        assert isinstance(await refused(stub.RemoveItems(request, timeout=60)), error)
        assert not any(shard.calls for shard in behind.shards)


def attributed(items: dict[str, Attributes]) -> pb.IngestItemsRequest:
    """Returns a batch of texts with these attributes by item id."""
    request = batch(dict.fromkeys(items, "1"))
    for item, attributes in zip(request.items, items.values(), strict=True):
        for name, message in attributes_to_proto(attributes).items():
            item.attributes[name].CopyFrom(message)
    return request


async def test_a_search_finds_matching_items_on_every_shard() -> None:
    """The attributes are returned with the contents, as they were sent."""
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
            written = query(filter_text="style = noto and count > 4", return_n=50)
            same = await stub.SearchItems(written, timeout=TIMEOUT_SECONDS)
            every = await stub.SearchItems(query(return_n=50), timeout=TIMEOUT_SECONDS)

    assert {item.item_id for item in found.items} == {f"item-{n}" for n in range(5, 20, 2)}
    assert [item.item_id for item in same.items] == [item.item_id for item in found.items]
    for item in found.items:
        assert attributes_from_proto(item.attributes) == kept[item.item_id]
    assert len(every.items) == 21
    assert not any(item.attributes for item in every.items)


async def test_searches_of_a_batch_differ_by_the_types_of_their_filters() -> None:
    """1 and 1.0 find the same, True another: as each search alone does, not as Python's keys do."""
    kept: dict[str, Attributes] = {
        "int": {"x": 1}, "real": {"x": 1.0}, "flag": {"x": True}, "text": {"x": "1"},
        "zero": {"x": 0}, "no": {"x": False},
    }  # fmt: skip
    values: list[Value] = [1, True, 1.0, "1", 0, False, -0.0, 0.0]
    trees = [OneOf("x", (value,)) for value in values]
    trees += [OneOf("x", (1, value)) for value in values]

    async with stack() as behind:
        assert await stored(behind, attributed(kept)) == [None] * len(kept)
        searches = [
            query(filter=filter_to_proto(tree), return_n=20, target_modality=1) for tree in trees
        ]
        async with door(behind) as stub:
            alone = [await stub.SearchItems(each, timeout=TIMEOUT_SECONDS) for each in searches]
            batch = await stub.BatchSearchItems(
                pb.BatchSearchItemsRequest(searches=searches), timeout=TIMEOUT_SECONDS
            )

    found = [{item.item_id for item in answer.items} for answer in alone]
    assert found[:6] == [{"int", "real"}, {"flag"}, {"int", "real"}, {"text"}, {"zero"}, {"no"}]
    for tree, expected, result in zip(trees, found, batch.results, strict=True):
        assert {item.item_id for item in result.response.items} == expected, tree


async def test_an_answer_has_the_search_path_of_each_shard() -> None:
    """By modality: the planner's choice, and why it is not the index's own."""
    path = index_pb.SearchPath(
        strategy="SEARCH_STRATEGY_PRE_FILTER",
        index_type="IVF64,SQ8",
        device="cpu",
        fallback="SEARCH_FALLBACK_DEVICE",
        fallback_reason="a GPU index takes no filter",
        matching_count=7,
    )
    async with stack() as behind:
        kept: dict[str, Attributes] = {f"item-{n}": {"n": n} for n in range(20)}
        assert await stored(behind, attributed(kept)) == [None] * 20
        behind.shards[1].path = path
        asked = query(all_modalities_included=True, return_n=2)
        async with door(behind) as stub:
            found = await stub.SearchItems(asked, timeout=TIMEOUT_SECONDS)
            batch = await stub.BatchSearchItems(
                pb.BatchSearchItemsRequest(searches=[asked, asked]), timeout=TIMEOUT_SECONDS
            )
            following = await stub.SearchItems(
                pb.SearchItemsRequest(index_id=asked.index_id, cursor=found.next_cursor),
                timeout=TIMEOUT_SECONDS,
            )

    told = [(each.shard_number, each.modality) for each in found.retrievals]
    assert sorted(told) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert {each.shard_number for each in found.retrievals if each.path == path} == {1}
    assert sum(each.item_count for each in found.retrievals if each.modality == 1) == 20
    for result in batch.results:
        assert list(result.response.retrievals) == list(found.retrievals)
    assert following.items
    assert not following.retrievals


async def test_an_item_with_a_bad_attribute_fails_alone() -> None:
    """The items next to it are stored."""
    async with stack() as behind:
        request = attributed({"a": {"n": 1}, "b": {"a b": 1}, "c": {}, "d": {"n": float("nan")}})
        request.items[2].attributes["unset"].SetInParent()

        outcomes = await stored(behind, request)

        assert outcomes == [None, *["ATTRIBUTE_INVALID"] * 3]
        assert text_of(behind, "a") == "1"
        assert {i for shard in behind.shards for i in shard.items.get("scenes", {})} == {"a"}


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": attribute_pb2.Filter(exists="a b")},
        {"filter_text": "a ="},
        {"filter_text": "exists a", "filter": attribute_pb2.Filter(exists="a")},
        {"filter_text": "a = " + "x" * 8_192},
    ],
)
async def test_a_bad_filter_is_refused_before_any_downstream_call(fields: dict[str, Any]) -> None:
    async with stack() as behind, door(behind) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SearchItems(query(**fields), timeout=TIMEOUT_SECONDS)

        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(error_from_rpc(caught.value, "search"), errors.FilterInvalid)
        assert not behind.encoder.calls
        assert not any(shard.calls for shard in behind.shards)
