"""SearchItems end to end: query forms, rankings, explanations, pages."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from random import Random

import grpc
import numpy as np
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.content import TextUse
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.orchestrator_svc.downstream import FINGERPRINT, Stack, door, stack

TIMEOUT_SECONDS = 20
ITEM_COUNT = 40


@pytest.fixture(name="behind")
async def _behind() -> AsyncIterator[Stack]:
    """Two shards with texts and images at 0, 1, 2 … degrees, all alike to the reranker."""
    async with stack() as behind:
        async with door(behind) as stub:
            await ingest(stub, range(ITEM_COUNT))
        for shard in behind.shards:
            shard.logits = {f"image-{n}": n / 100 for n in range(100)}
        yield behind


@pytest.fixture(name="stub")
async def _stub(behind: Stack) -> AsyncIterator[SearchServiceStub]:
    async with door(behind) as stub:
        yield stub


async def ingest(stub: SearchServiceStub, numbers: range) -> None:
    """Stores a text and an image for each number."""
    items = [
        index_pb.Item(item_id=f"image-{n}", content={"image": str(n).encode()}) for n in numbers
    ]
    items += [index_pb.Item(item_id=f"text-{n}", content={"text": str(n)}) for n in numbers]
    requests = [
        pb.IngestItemsRequest(index_id="scenes", items=items[start : start + 40])
        for start in range(0, len(items), 40)
    ]
    async for response in stub.IngestItems(iter(requests)):
        assert not any(result.HasField("error") for result in response.results)


def asked(**fields: object) -> pb.SearchItemsRequest:
    """Returns a search for images near 1 degree."""
    start: dict[str, object] = {"index_id": "scenes"}
    if "query_parts" not in fields:
        start["query"] = {"text": "1"}
    return pb.SearchItemsRequest(**(start | fields))  # type: ignore[arg-type]


async def answered(stub: SearchServiceStub, **fields: object) -> pb.SearchItemsResponse:
    """Returns the answer."""
    response: pb.SearchItemsResponse = await stub.SearchItems(
        asked(**fields), timeout=TIMEOUT_SECONDS
    )
    return response


async def refused(stub: SearchServiceStub, request: pb.SearchItemsRequest) -> errors.TandemError:
    """Returns the named error that the search ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.SearchItems(request, timeout=TIMEOUT_SECONDS)
    return error_from_rpc(caught.value, "orchestrator")


def ids(response: pb.SearchItemsResponse) -> list[str]:
    """Returns the items, best first."""
    return [item.item_id for item in response.items]


def embedding(degrees: float) -> dict[str, bytes]:
    """Returns the embedding of an angle."""
    angle = math.radians(degrees)
    return {"values": np.array([math.cos(angle), math.sin(angle)], dtype="<f4").tobytes()}


async def test_a_stored_item_is_a_query(stub: SearchServiceStub) -> None:
    """Of its own modality, where it ranks first itself, or of the other, reranked."""
    alike = await answered(
        stub,
        query_parts=[{"item_id": "image-7"}],
        target_modality="MODALITY_IMAGE",
        return_n=3,
    )
    others = await answered(
        stub, query_parts=[{"item_id": "text-7"}], target_modality="MODALITY_IMAGE", rerank_k=3
    )

    assert ids(alike) == ["image-7", "image-6", "image-8"]
    assert alike.rerank.stop == pb.RERANK_STOP_NOT_APPLICABLE
    assert ids(others)[:3] == ["image-8", "image-7", "image-6"]
    assert others.rerank.stop == pb.RERANK_STOP_COMPLETE


async def test_a_given_encoding_is_a_query(stub: SearchServiceStub, behind: Stack) -> None:
    """With tokens it is reranked, without it is not; the encoder is not asked."""
    behind.encoder.calls.clear()
    given = {
        "embedding": embedding(5),
        "model_fingerprint": FINGERPRINT,
        "modality": "MODALITY_TEXT",
    }
    tokens = {"text": {"ids": np.array([2, 3], dtype="<i4").tobytes()}}

    plain = await answered(stub, query_parts=[{"encoding": given}], rerank_k=2)
    scored = await answered(stub, query_parts=[{"encoding": given | {"tokens": tokens}}])

    assert ids(plain)[0] == "image-5"
    assert plain.rerank.stop == pb.RERANK_STOP_NOT_APPLICABLE
    assert all(item.HasField("match_logit") for item in scored.items)
    assert not behind.encoder.calls


async def test_text_and_image_compose(stub: SearchServiceStub, behind: Stack) -> None:
    behind.encoder.text_uses["0"] = TextUse(3, 3)

    response = await answered(
        stub,
        query_parts=[
            {"content": {"text": "0"}, "weight": 1.0},
            {"content": {"image": b"30"}, "weight": 3.0},
        ],
        target_modality="MODALITY_IMAGE",
        rerank_k=1,
    )

    # atan2(3 sin 30, 1 + 3 cos 30) = 22.6 degrees.
    assert ids(response)[0] == "image-23"
    assert response.items[0].HasField("match_logit")
    assert response.text_uses == [content_pb2.TextUse(token_count=3, used_token_count=3)]
    assert response.cost.cache_miss_count == 2


PART = {"content": {"text": "1"}}
GIVEN = {"embedding": embedding(1), "model_fingerprint": FINGERPRINT, "modality": 1}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"query": None}, errors.QueryInvalid),
        ({"query": {"text": "1"}, "query_parts": [PART]}, errors.QueryInvalid),
        ({"query_parts": [{}]}, errors.QueryInvalid),
        ({"query_parts": [{"content": {}}]}, errors.ContentMissing),
        ({"query_parts": [PART] * 17}, errors.QueryInvalid),
        ({"query_parts": [PART, {"content": {"image": b"1"}}]}, errors.QueryInvalid),
        ({"query_parts": [PART | {"weight": math.nan}]}, errors.QueryInvalid),
        ({"query_parts": [PART, PART | {"weight": -1.0}]}, errors.QueryInvalid),
        (
            {"query_parts": [{"encoding": GIVEN | {"tokens": {"image": {"token_count": 1}}}}]},
            errors.TokensInvalid,
        ),
        (
            {"query_parts": [{"encoding": GIVEN | {"model_fingerprint": "b"}}, PART]},
            errors.ModelMismatch,
        ),
        (
            {"query_parts": [{"item_id": "gone"}], "target_modality": 1},
            errors.ItemNotFound,
        ),
        ({"fusion": {"method": 9}}, errors.RankingInvalid),
        ({"fusion": {"method": 2, "cross_encoder_weight": 1.5}}, errors.RankingInvalid),
        ({"fusion": {"method": 2}, "rerank_disabled": True}, errors.RankingInvalid),
        ({"min_probability": 0.5, "rerank_disabled": True}, errors.RankingInvalid),
        ({"min_probability": 0.5, "target_modality": 1}, errors.RankingInvalid),
        ({"rerank_required": True, "rerank_disabled": True}, errors.RankingInvalid),
        ({"cursor": b"not one"}, errors.CursorInvalid),
    ],
)
async def test_a_search_is_refused_by_name(
    stub: SearchServiceStub, fields: dict[str, object], error: type[errors.TandemError]
) -> None:
    assert await answered(stub)

    assert type(await refused(stub, asked(**fields))) is error


async def test_variety_compares_embeddings(stub: SearchServiceStub) -> None:
    """Items within 3.9 degrees of a better one are dropped; the shards send the embeddings."""
    response = await answered(
        stub,
        diversity={"duplicate_similarity": math.cos(math.radians(3.9))},
        rerank_disabled=True,
        retrieve_k=ITEM_COUNT,
        return_n=5,
    )

    assert ids(response) == ["image-1", "image-5", "image-9", "image-13", "image-17"]


async def test_explanations_add_up_on_the_wire(stub: SearchServiceStub) -> None:
    """Terms add up to the score within 1e-6, with all options set at once."""
    response = await answered(
        stub,
        fusion={"method": "FUSION_METHOD_ADD", "cross_encoder_weight": 0.3},
        diversity={"relevance_weight": 0.7},
        all_modalities_included=True,
        explained=True,
    )

    assert {item.modality for item in response.items} == {1, 2}
    for item in response.items:
        total = math.fsum(term.value * term.weight for term in item.explanation.terms)
        assert total == pytest.approx(item.score, abs=1e-6)
        assert [each.stage for each in item.explanation.ranks] == [
            "retrieve",
            "rerank",
            "diversity",
            "interleave",
        ]
        assert item.explanation.ranks[-1].rank == item.final_rank
    assert not (await answered(stub)).items[0].HasField("explanation")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"fusion": {"method": "FUSION_METHOD_NORMALISED_ADD", "cross_encoder_weight": 0.3}},
    ],
)
async def test_an_uncalibrated_cross_encoder_gives_an_order_and_no_probabilities(
    behind: Stack, stub: SearchServiceStub, fields: dict[str, object]
) -> None:
    """Scores are those of the sigmoid, which no part of the answer calls a probability."""
    fields |= {"retrieve_k": 20, "rerank_k": 10, "return_n": 5, "explained": True}
    calibrated = await answered(stub, **fields)
    assert all(item.HasField("match_probability") for item in calibrated.items)
    assert not calibrated.rerank.probability_withheld
    for shard in behind.shards:
        shard.is_calibrated = False

    answer = await answered(stub, **fields)
    page = await stub.SearchItems(
        pb.SearchItemsRequest(index_id="scenes", cursor=answer.next_cursor, return_n=5),
        timeout=TIMEOUT_SECONDS,
    )

    assert ids(answer) == ids(calibrated)
    for item, same in zip(answer.items, calibrated.items, strict=True):
        assert item.score == pytest.approx(same.score, abs=1e-6)
        assert item.match_logit == same.match_logit
    for each in (answer, page):
        assert each.rerank.probability_withheld == error_reason_pb2.ERROR_REASON_UNCALIBRATED
        assert all(item.HasField("match_logit") for item in each.items)
        assert not any(item.HasField("match_probability") for item in each.items)
        names = {term.name for item in each.items for term in item.explanation.terms}
        assert not any("probability" in name for name in names)


async def test_a_cut_by_probability_of_an_uncalibrated_cross_encoder_is_refused(
    behind: Stack, stub: SearchServiceStub
) -> None:
    """By name: an empty answer would look as if nothing matched."""
    for shard in behind.shards:
        shard.is_calibrated = False

    error = await refused(stub, asked(min_probability=0.5))

    assert type(error) is errors.Uncalibrated
    assert "min_probability" in error.message


async def test_pages_of_one_search_neither_overlap_nor_leave_gaps(
    stub: SearchServiceStub, behind: Stack
) -> None:
    """Though items are deleted and stored between them, and pages come from several orchestrators.

    No page after the first encodes, searches or scores anything.
    """
    fields = {"retrieve_k": ITEM_COUNT, "rerank_k": 25, "return_n": 40, "explained": True}
    whole = await answered(stub, **fields)
    assert not whole.next_cursor
    random = Random(3)
    async with door(behind) as other:
        page = await answered(stub, **(fields | {"return_n": 7}))
        items = list(page.items)
        for shard in behind.shards:
            shard.calls.clear()
        behind.encoder.calls.clear()
        while page.next_cursor:
            deleted = f"image-{random.randrange(ITEM_COUNT)}"
            for shard in behind.shards:
                shard.items["scenes"].pop(deleted, None)
                shard.logits[f"image-{random.randrange(ITEM_COUNT)}"] = 99.0
            page = await random.choice([stub, other]).SearchItems(
                pb.SearchItemsRequest(index_id="scenes", cursor=page.next_cursor),
                timeout=TIMEOUT_SECONDS,
            )
            assert 1 <= len(page.items) <= 7
            assert page.model_fingerprint == whole.model_fingerprint
            assert page.coverage == whole.coverage
            assert page.rerank == whole.rerank
            items += page.items

    assert items == list(whole.items)
    assert not behind.encoder.calls
    assert not any(shard.calls for shard in behind.shards)


async def test_a_page_has_contents_on_request_and_deleted_items_have_none(
    stub: SearchServiceStub, behind: Stack
) -> None:
    """They keep their place, so pages have the requested size."""
    first = await answered(
        stub, query={"text": "0"}, rerank_disabled=True, retrieve_k=6, return_n=3
    )
    for shard in behind.shards:
        shard.items["scenes"].pop("image-4", None)

    page = await stub.SearchItems(
        pb.SearchItemsRequest(index_id="scenes", cursor=first.next_cursor, content_included=True),
        timeout=TIMEOUT_SECONDS,
    )

    assert ids(first) == ["image-0", "image-1", "image-2"]
    assert ids(page) == ["image-3", "image-4", "image-5"]
    assert [item.content.image for item in page.items] == [b"3", b"", b"5"]
    assert not page.items[1].HasField("content")
    assert [item.final_rank for item in page.items] == [4, 5, 6]
    assert not page.next_cursor
    assert page.durations.fetch_duration.ToNanoseconds() > 0


async def test_stage_times_make_the_total(stub: SearchServiceStub) -> None:
    """Within 2 ms, pages included, in one of ten: a busy machine adds to it."""
    rests: dict[str, list[int]] = {"search": [], "page": []}
    for _ in range(10):
        first = await answered(stub, retrieve_k=ITEM_COUNT, content_included=True)
        page = await stub.SearchItems(
            pb.SearchItemsRequest(index_id="scenes", cursor=first.next_cursor),
            timeout=TIMEOUT_SECONDS,
        )
        for name, response in (("search", first), ("page", page)):
            stages = sum(
                getattr(response.durations, f"{stage}_duration").ToNanoseconds()
                for stage in ("encode", "retrieve", "rerank", "fetch", "rank")
            )
            rests[name].append(response.durations.total_duration.ToNanoseconds() - stages)

    for each in rests.values():
        assert min(each) >= -1000
        assert min(each) < 2_000_000


FORMS: list[dict[str, object]] = [
    {},
    {"query_parts": [{"item_id": "text-7"}], "target_modality": 2},
    {"query_parts": [{"encoding": GIVEN}], "explained": True},
    {"query_parts": [PART, {"content": {"image": b"30"}, "weight": 2.0}], "target_modality": 2},
    {"all_modalities_included": True, "diversity": {"relevance_weight": 0.5}},
    {"query": {"text": "3|20"}, "truncation_policy": "TRUNCATION_POLICY_BEST_WINDOW"},
    {"fusion": {"method": "FUSION_METHOD_ADD"}, "min_probability": 0.51},
]


async def test_a_batch_answers_each_form_as_a_search_does(stub: SearchServiceStub) -> None:
    alone = [await answered(stub, **form) for form in FORMS]

    batch = await stub.BatchSearchItems(
        pb.BatchSearchItemsRequest(searches=[asked(**form) for form in FORMS]),
        timeout=TIMEOUT_SECONDS,
    )

    for single, result in zip(alone, batch.results, strict=True):
        assert list(result.response.items) == list(single.items)
        assert result.response.rerank == single.rerank
        assert result.response.next_cursor == single.next_cursor


async def test_a_stream_ends_as_a_search_does(stub: SearchServiceStub) -> None:
    for form in FORMS:
        single = await answered(stub, **form)

        call = stub.StreamSearchItems(
            pb.StreamSearchItemsRequest(search=asked(**form)), timeout=TIMEOUT_SECONDS
        )
        first, last = [response.answer async for response in call]

        assert not any(item.HasField("match_logit") for item in first.items)
        assert not first.next_cursor
        assert list(last.items) == list(single.items)
        assert last.next_cursor == single.next_cursor
