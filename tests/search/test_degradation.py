"""Degraded answers as their caller reads them, and what is still an error.

docs/degradation.md says the same in a table.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from statistics import median

import grpc
import pytest

from tandem import errors
from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.modality import Modality
from tandem.contract.model_description import (
    MODEL_WIRE,
    AdaptiveDepthRule,
    ModelDescription,
    ProbabilityCalibration,
)
from tandem.contract.search.score_calibration import SCORE_CALIBRATION_WIRE, ScoreCalibration
from tandem.search.metrics import DEGRADED_ANSWERS, PROMISED_ANSWERS
from tandem.search.settings import SEARCH_DEFAULTS
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as index_pb
from tandem.v1 import model_service_pb2 as model_pb
from tandem.v1 import rerank_service_pb2 as rerank_pb
from tandem.v1 import search_service_pb2 as pb
from tandem.v1.search_service_pb2_grpc import SearchServiceStub
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.orchestrator_svc.downstream import (
    DESCRIPTION,
    FINGERPRINT,
    Stack,
    door,
    raising,
    stack,
)

TIMEOUT_SECONDS = 60
NAMES = [f"image-{number:02}" for number in range(12)]
GONE = errors.ModelUnavailable(model="joint", why="it is gone")


@asynccontextmanager
async def twelve_pictures() -> AsyncIterator[Stack]:
    """Yields a stack that has them, all of which the cross-encoder can read."""
    async with stack() as behind:
        items = [
            index_pb.Item(item_id=name, content=content_pb2.Content(image=str(n).encode()))
            for n, name in enumerate(NAMES)
        ]
        async with door(behind) as stub:
            request = pb.IngestItemsRequest(index_id="scenes", items=items)
            assert [each async for each in stub.IngestItems(iter([request]))]
        for shard in behind.shards:
            shard.logits.update({name: float(n) for n, name in enumerate(NAMES)})
        yield behind


@pytest.fixture
async def filled() -> AsyncIterator[Stack]:
    """Twelve pictures."""
    async with twelve_pictures() as behind:
        yield behind


def search(**fields: object) -> pb.SearchItemsRequest:
    """Returns a search for pictures near 0 degrees."""
    request = {"index_id": "scenes", "query": content_pb2.Content(text="0")} | fields
    return pb.SearchItemsRequest(**request)  # type: ignore[arg-type]


async def answer(
    stub: SearchServiceStub, request: pb.SearchItemsRequest | None = None
) -> pb.SearchItemsResponse:
    """Returns what the search is answered."""
    return await stub.SearchItems(request or search(), timeout=TIMEOUT_SECONDS)


async def refusal(call: grpc.aio.Call) -> errors.TandemError:
    """Returns the named error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "orchestrator")


@pytest.mark.parametrize(
    "scores",
    [
        [rerank_pb.CandidateScore(match_logit=float("nan"), match_probability=0.5)],
        [rerank_pb.CandidateScore(match_logit=1.0, match_probability=1.5)],
        [],
    ],
)
async def test_nonsense_of_the_cross_encoder_is_not_ranked_by(
    filled: Stack, scores: list[rerank_pb.CandidateScore]
) -> None:
    """NaN, infinite, no probability, or of another number: the order stays, flagged and named."""

    async def nonsense(
        request: rerank_pb.ScoreCandidatesRequest, context: grpc.aio.ServicerContext
    ) -> rerank_pb.ScoreCandidatesResponse:
        return rerank_pb.ScoreCandidatesResponse(scores=scores * len(request.item_ids))

    counted = DEGRADED_ANSWERS.labels("rerank_skipped")._value.get()
    for shard in filled.shards:
        shard.answer_scores = nonsense
    async with door(filled) as stub:
        found = await answer(stub)

    assert [item.item_id for item in found.items] == NAMES[:10]
    assert found.rerank.stop == pb.RERANK_STOP_OUTPUT_INVALID
    assert list(found.degradations) == [pb.DEGRADATION_RERANK_SKIPPED]
    assert DEGRADED_ANSWERS.labels("rerank_skipped")._value.get() == counted + 1


async def test_a_dead_cross_encoder_gets_no_calls_after_a_few_searches() -> None:
    """Then each search is as fast as one without a rerank; the first after its recovery is
    complete.
    """

    async def check(factor: float) -> None:
        async with twelve_pictures() as behind, door(behind) as stub:
            for shard in behind.shards:
                shard.before["ScoreCandidates"] = raising(errors.InternalFault(why="a bug"))
            for _ in range(6):
                await answer(stub)
            counts = [len(shard.requests("ScoreCandidates")) for shard in behind.shards]
            found = [await answer(stub) for _ in range(10)]
            # On a busy machine a breaker's cool-down may pass, and one search then tries again.
            for shard, count in zip(behind.shards, counts, strict=True):
                assert len(shard.requests("ScoreCandidates")) <= count + 3 * factor
            stops = [each.rerank.stop for each in found]
            assert stops.count(pb.RERANK_STOP_UNAVAILABLE) >= 7
            told = [each.durations.rerank_duration.ToNanoseconds() for each in found]
            assert median(told) < 5_000_000 * factor

            for shard in behind.shards:
                shard.before.clear()
            async with asyncio.timeout(60):
                while (await answer(stub)).degradations:  # noqa: ASYNC110 (it has no event)
                    await asyncio.sleep(0.1)

    await holds_with_longer_times(check)


async def test_a_missing_shard_is_flagged_as_well_as_in_the_coverage(filled: Stack) -> None:
    """Its rerank_svc, which is not called, is not flagged."""
    await filled.stop_shard(1)
    async with door(filled) as stub:
        found = await answer(stub)

    assert list(found.degradations) == [pb.DEGRADATION_SHARDS_MISSING]
    assert found.coverage.answered_shard_count == 1


async def test_a_dead_shard_is_not_waited_for_after_a_few_searches() -> None:
    """It hangs: the first searches wait their share for it, later ones do not call it."""

    async def hang(request: object) -> None:
        await asyncio.sleep(300)

    async def check(factor: float) -> None:
        short_seconds = 1.0 * factor
        seconds = []
        async with twelve_pictures() as behind, door(behind) as stub:
            behind.shards[1].before["SearchEmbeddings"] = hang
            for _ in range(8):
                start_time = time.monotonic()
                found = await stub.SearchItems(search(), timeout=short_seconds)
                assert list(found.degradations) == [pb.DEGRADATION_SHARDS_MISSING]
                seconds.append(time.monotonic() - start_time)

        share = SEARCH_DEFAULTS.retrieval_time_share * short_seconds
        assert seconds[0] > 0.8 * share
        assert (
            sum(each > 0.8 * share for each in seconds) == SEARCH_DEFAULTS.breaker_consecutive_count
        )
        assert seconds[-1] < 0.5 * share

    await holds_with_longer_times(check)


async def test_without_its_model_the_encoder_may_still_know_the_query(filled: Stack) -> None:
    """The answer is complete, and flagged as cached."""
    filled.encoder.is_model_unavailable = True
    async with door(filled) as stub:
        found = await answer(stub)

    assert list(found.degradations) == [pb.DEGRADATION_EMBEDDING_CACHED]
    assert found.rerank.stop == pb.RERANK_STOP_COMPLETE


async def test_an_encoder_without_its_model_is_still_called(filled: Stack) -> None:
    """However often it had to refuse, the next query may be in its cache."""
    filled.encoder.before["EncodeContents"] = raising(GONE)
    async with door(filled) as stub:
        for _ in range(8):
            assert isinstance(await refusal(answer(stub)), errors.ModelUnavailable)
        filled.encoder.before.clear()
        filled.encoder.is_model_unavailable = True

        assert len((await answer(stub)).items) == 10


async def test_a_shard_that_does_without_its_index_is_flagged(filled: Stack) -> None:
    """A scan by the index's own plan is not degraded, nor is one that an operator chose."""
    building = index_pb.SEARCH_FALLBACK_BEING_BUILT
    for strategy, fallback, degradations in (
        ("EXACT_SCAN", index_pb.SEARCH_FALLBACK_UNSPECIFIED, []),
        ("EXACT_SCAN", index_pb.SEARCH_FALLBACK_NOT_BUILT, []),
        ("EXACT_SCAN", index_pb.SEARCH_FALLBACK_TOO_FEW_FOUND, []),
        ("EXACT_SCAN", building, [pb.DEGRADATION_SHARD_REBUILDING]),
        ("UNFILTERED", building, []),
    ):
        filled.shards[0].path = index_pb.SearchPath(
            strategy=f"SEARCH_STRATEGY_{strategy}",
            fallback=fallback,
            fallback_reason="in words that nothing is to depend on: the index is being built",
        )
        async with door(filled) as stub:
            assert list((await answer(stub)).degradations) == degradations


async def test_a_required_rerank_is_refused_on_the_wire(filled: Stack) -> None:
    """The error names the depth reached; a rerank that is impossible is the caller's mistake."""
    for shard in filled.shards:
        shard.before["ScoreCandidates"] = raising(GONE)
    async with door(filled) as stub:
        error = await refusal(answer(stub, search(rerank_required=True)))
        assert isinstance(error, errors.RerankUnavailable)
        assert error.metadata == {"stop": "UNAVAILABLE", "reranked_depth": "0"}

        texts = search(rerank_required=True, target_modality=content_pb2.MODALITY_TEXT)
        assert isinstance(await refusal(answer(stub, texts)), errors.RankingInvalid)


async def test_a_bi_encoder_alone_keeps_its_order(filled: Stack) -> None:
    """A cross-encoder is requested once, as a remote one may be there; the answer says that there
    is none, and who must have it is refused by name.
    """
    filled.encoder.has_cross_encoder = False
    async with door(filled) as stub:
        found = await answer(stub)

        assert [item.item_id for item in found.items] == NAMES[:10]
        assert found.rerank.stop == pb.RERANK_STOP_NOT_APPLICABLE
        assert not found.degradations
        asked_count = sum(len(shard.requests("ScoreCandidates")) for shard in filled.shards)
        assert asked_count <= len(filled.shards)
        for asked in ({"rerank_required": True}, {"min_probability": 0.5}):
            error = await refusal(answer(stub, search(**asked)))
            assert isinstance(error, errors.CrossEncoderMissing)
            assert error.status == "FAILED_PRECONDITION"
        assert asked_count == sum(len(s.requests("ScoreCandidates")) for s in filled.shards)


CALIBRATION = ProbabilityCalibration(2.0, 0.5)
RULE = AdaptiveDepthRule(
    first_count=5,
    further_count=5,
    intercept=0.1,
    best_logit_weight=0.2,
    margin_weight=0.3,
    similarity_gap_weight=0.4,
    log_rank_weight=0.5,
    stop_chance=0.6,
)


def described(fingerprint: str = FINGERPRINT, **rules: object) -> ModelDescription:
    """Returns a description."""
    return replace(DESCRIPTION, fingerprint=fingerprint, **rules)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of_cross_encoder", "expected"),
    [
        (
            described(probability_calibration=CALIBRATION, adaptive_depth_rule=RULE),
            described(probability_calibration=CALIBRATION, adaptive_depth_rule=RULE),
        ),
        (described("model-b", adaptive_depth_rule=RULE), described()),
        (None, described()),
    ],
)
async def test_the_model_description_is_that_of_the_downstream_services(
    filled: Stack, of_cross_encoder: ModelDescription | None, expected: ModelDescription
) -> None:
    """By the encoder, and by the cross-encoder if it is available and of the same model."""
    filled.encoder.description = described()
    for shard in filled.shards:
        shard.description = of_cross_encoder
    async with door(filled) as stub:
        response = await stub.DescribeModel(model_pb.DescribeModelRequest(), timeout=60)  # type: ignore[attr-defined]

    assert MODEL_WIRE.from_proto(response.model) == expected


async def test_neighbours_without_a_model_are_named(filled: Stack) -> None:
    """The order before stays, and so says the answer of any form."""
    request = search(neighbours_enabled=True)
    for shard in filled.shards:
        shard.description = described()
    async with door(filled) as stub:
        plain = await answer(stub)
        found = await answer(stub, request)
        batch = await stub.BatchSearchItems(pb.BatchSearchItemsRequest(searches=[request]))
        streamed = [
            each.answer
            async for each in stub.StreamSearchItems(pb.StreamSearchItemsRequest(search=request))
        ]
        page = await answer(
            stub, pb.SearchItemsRequest(index_id="scenes", cursor=found.next_cursor)
        )

    assert [item.item_id for item in found.items] == [item.item_id for item in plain.items]
    for one in (found, batch.results[0].response, streamed[-1], page):
        assert one.degradations == [pb.DEGRADATION_NEIGHBOURS_SKIPPED]
        assert one.neighbours == pb.NeighbourSummary(stop="NEIGHBOUR_STOP_NOT_SERVED")
        assert {item.ordered_by for item in one.items} == {pb.ORDERING_STAGE_RERANK}
        assert not any(item.HasField("neighbour_score") for item in one.items)
    assert not plain.HasField("neighbours")
    assert {item.ordered_by for item in plain.items} == {pb.ORDERING_STAGE_RERANK}
    assert not plain.durations.HasField("neighbours_duration")


async def test_required_neighbours_that_are_not_there_fail_the_search(filled: Stack) -> None:
    for shard in filled.shards:
        shard.description = described()
    async with door(filled) as stub:
        error = await refusal(
            stub.SearchItems(search(neighbours_enabled=True, neighbours_required=True))
        )
        contradiction = await refusal(stub.SearchItems(search(neighbours_required=True)))

    assert isinstance(error, errors.NeighbourModelMissing)
    assert isinstance(contradiction, errors.RankingInvalid)


async def test_a_promise_is_kept_by_what_scored(filled: Stack) -> None:
    """Of every form: by logits, and by similarities where the cross-encoder is gone."""
    first = await _plain(filled)
    similarities = ScoreCalibration(
        model_fingerprint=FINGERPRINT,
        query_modality=Modality.TEXT,
        target_modality=Modality.IMAGE,
        null_scores=(first.items[0].similarity - 1.0,) * 19,
    )
    logits = replace(
        similarities, scorer=first.rerank.reranker, null_scores=(8.5,) * 19, rerank_k=20
    )
    promised = search(max_false_answer_rate=0.05, return_n=2)
    counted = PROMISED_ANSWERS.labels("scenes", "text_to_image", "answered")
    count_before = counted._value.get()
    async with door(filled) as stub:
        request = pb.SetCalibrationsRequest(
            index_id="scenes",
            calibrations=map(SCORE_CALIBRATION_WIRE.to_proto, (similarities, logits)),
        )
        assert (await stub.SetCalibrations(request)).calibration_count == 2
        scored = await answer(stub, promised)
        page = await answer(
            stub, pb.SearchItemsRequest(index_id="scenes", cursor=scored.next_cursor)
        )
        batch = await stub.BatchSearchItems(pb.BatchSearchItemsRequest(searches=[promised]))
        for shard in filled.shards:
            shard.before["ScoreCandidates"] = raising(GONE)
        degraded = await answer(stub, promised)

    assert [item.item_id for item in scored.items] == ["image-11", "image-10"]
    assert [item.item_id for item in page.items] == ["image-09"]
    assert batch.results[0].response.items == scored.items
    assert scored.abstention == pb.Abstention(
        max_false_answer_rate=0.05,
        scorer=first.rerank.reranker,
        threshold=8.5,
        null_score_count=19,
    )
    assert degraded.degradations == [pb.DEGRADATION_RERANK_SKIPPED]
    assert degraded.abstention.scorer == "bi-encoder"
    assert counted._value.get() - count_before == 3
    assert [item.item_id for item in degraded.items] == NAMES[:2]


async def _plain(behind: Stack) -> pb.SearchItemsResponse:
    async with door(behind) as stub:
        return await answer(stub)
