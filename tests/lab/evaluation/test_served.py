"""Evaluation over a connection: ranks in order, failures by name, no query drawn early."""

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from tandem.client import AsyncClient
from tandem.contract.content import Modality
from tandem.corpus.scenes.records import scene_records
from tandem.errors import CrossEncoderMissing, IndexNotFound
from tandem.lab.evaluation.gallery import Direction, EvaluationQuery, Gallery, make_gallery
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.served import AdaptiveDepth, AnswerRanks, answer_ranks, served_reports
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import search_server


def query(text: str, answer_id: str = "right") -> EvaluationQuery:
    return EvaluationQuery(text, Modality.IMAGE, {answer_id: 1, "also right": 1})


def found(item_id: str, retrieve_rank: int, final_rank: int) -> pb.RankedItem:
    return pb.RankedItem(item_id=item_id, retrieve_rank=retrieve_rank, final_rank=final_rank)


async def ranks_in(
    client: AsyncClient,
    queries: Iterable[EvaluationQuery],
    k: int,
    concurrency: int,
    on_answer: Callable[[], None] = lambda: None,
) -> list[AnswerRanks]:
    """Returns the ranks in one index."""
    answered = await answer_ranks(
        client, ["scenes"], queries, k, concurrency, on_answer, without_cross_encoder=set()
    )
    return [ranks for [ranks] in answered]


async def report_of(
    client: AsyncClient,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    query_count: int | None = None,
    **options: Any,
) -> Report:
    directions = gallery.directions(query_count)
    [report] = await served_reports(client, ["scenes"], directions, pool_sizes, {}, **options)
    return report


async def test_ranks_are_those_of_the_answer_in_both_orders() -> None:
    """One search tells both, the best answer first; one outside the pool has no rank."""

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if request.query.text == "nowhere":
            return pb.SearchItemsResponse(items=[found("wrong", 1, 1)])
        items = [found("wrong", 1, 1), found("also right", 8, 3), found("right", 7, 4)]
        return pb.SearchItemsResponse(items=items)

    answered = []
    async with search_server(search) as (address, service), AsyncClient(address) as client:
        queries = [query("somewhere"), query("nowhere")]
        ranks = await ranks_in(client, queries, 20, 2, lambda: answered.append(1))

    nowhere = (None, None)
    assert [each.retrieve_ranks for each in ranks] == [(7, 8), nowhere]
    assert [each.final_ranks for each in ranks] == [(3, 4), nowhere]
    assert all(each.seconds > 0 for each in ranks)
    assert len(answered) == 2
    for request in service.requests:
        assert isinstance(request, pb.SearchItemsRequest)
        assert (request.retrieve_k, request.rerank_k, request.return_n) == (20, 20, 20)
        # Less than the whole is not measured.
        assert request.full_coverage_required
        assert request.rerank_required


async def test_ranks_are_in_the_order_of_the_queries() -> None:
    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        number = int(request.query.text)
        await asyncio.sleep(0.02 * (5 - number))
        return pb.SearchItemsResponse(items=[found("right", number + 1, number + 1)])

    async with search_server(search) as (address, _), AsyncClient(address) as client:
        queries = [query(str(number)) for number in range(5)]
        ranks = await ranks_in(client, queries, 20, 5)

    assert [each.retrieve_ranks[0] for each in ranks] == [1, 2, 3, 4, 5]


async def test_queries_are_drawn_no_earlier_than_needed() -> None:
    """A picture query reads its picture: a thousand of them at once would fill the memory."""
    answered, most_ahead = 0, 0

    def count_answer() -> None:
        nonlocal answered
        answered += 1

    def queries() -> Iterator[EvaluationQuery]:
        nonlocal most_ahead
        for number in range(12):
            most_ahead = max(most_ahead, number + 1 - answered)
            yield query(str(number))

    async with search_server() as (address, _), AsyncClient(address) as client:
        ranks = await ranks_in(client, queries(), 20, 3, count_answer)

    assert len(ranks) == 12
    # Three in progress, and the next drawn while it waits for room.
    assert most_ahead <= 4


async def test_a_search_that_fails_is_raised_by_its_own_name() -> None:
    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if request.query.text == "2":
            raise IndexNotFound(index_id="scenes")
        await asyncio.sleep(5)
        return pb.SearchItemsResponse()

    async with search_server(search) as (address, _), AsyncClient(address) as client:
        queries = [query(str(number)) for number in range(4)]
        with pytest.raises(IndexNotFound, match="scenes"):
            await ranks_in(client, queries, 20, 4)


async def test_a_served_report_has_every_pool_size_and_a_search_without_the_cross_encoder() -> None:
    """BE's time is that of the search with k = 0; a k below 10 still sees ten items."""
    gallery = make_gallery(scene_records("test", 1, 8), ["en"])
    asked = []

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        depth = 0 if request.rerank_disabled else request.rerank_k
        asked.append((request.retrieve_k, depth))
        # Without a cross-encoder there is no rerank to require.
        assert request.rerank_required is not request.rerank_disabled
        final = 1 if request.rerank_k == 5 else 3
        ids = [item_id for of_modality in gallery.item_ids.values() for item_id in of_modality]
        return pb.SearchItemsResponse(
            items=[found(each, request.retrieve_k // 5, final) for each in ids]
        )

    async with search_server(search) as (address, _), AsyncClient(address) as client:
        report = await report_of(client, gallery, [5, 20, 0], query_count=2, concurrency=1)

    assert asked == 2 * ([(10, 0)] * 2 + [(10, 5)] * 2 + [(20, 20)] * 2)
    assert report.orders() == ["BE", "BE + CE 5", "BE + CE 20"]
    for each in report.rankings:
        expected = {0: 4, 5: 1, 20: 3}[each.k]  # BE of the largest pool
        assert each.ranks == (expected, expected)
        assert each.other_ranks == ((), ())
        assert each.query_seconds is not None
    assert report.languages == {"text→image": ["en", "en"], "image→text": ["en", "en"]}


async def test_two_indexes_are_asked_in_turn_and_one_may_have_no_cross_encoder() -> None:
    """What both answer is figured by grades, probabilities and pools."""
    asked: list[str] = []

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if request.index_id == "bi" and request.rerank_required:
            raise CrossEncoderMissing(what="rerank_required")
        asked.append(request.index_id)
        if request.index_id == "bi":
            return pb.SearchItemsResponse()
        scored = {"best": (3.0, 0.9), "wrong": (2.0, 0.6), "good": (1.0, 0.3)}
        items = [
            pb.RankedItem(
                item_id=item_id,
                retrieve_rank=4 - rank,
                final_rank=rank,
                match_logit=logit,
                match_probability=probability,
            )
            for rank, (item_id, (logit, probability)) in enumerate(scored.items(), start=1)
        ]
        return pb.SearchItemsResponse(items=items)

    grades = {"best": 3, "good": 1}
    every = [EvaluationQuery(str(n), Modality.IMAGE, grades) for n in range(4)]
    direction = Direction("text→image", [""] * 4, lambda: every)
    async with search_server(search) as (address, _), AsyncClient(address) as client:
        joint, bi = await served_reports(
            client, ["joint", "bi"], [direction], [20], {}, concurrency=1
        )

    assert asked == ["joint", "bi", "bi", "joint"] * 2
    assert (bi.orders(), bi.about["cross-encoder"]) == (["BE"], "none")
    assert bi.rankings[0].served is not None
    assert bi.rankings[0].served.empty_count == 4
    be, final = joint.rankings
    assert (be.served, be.ranks, final.ranks) == (None, (1,) * 4, (1,) * 4)
    # By hand: found with grades 3, 0, 1 and 1, 0, 3.
    best = 3 + 1 / math.log2(3)
    assert final.ndcg == pytest.approx((3 + 1 / 2) / best)
    assert be.ndcg == pytest.approx((1 + 3 / 2) / best)
    assert final.served is not None
    assert final.served.p95_seconds is None  # too few
    # The wrong one is before one of two.
    assert final.served.pool_aucs == (0.5,) * 4
    assert final.served.calibration_error == pytest.approx((0.1 + 0.6 + 0.7) / 3, abs=1e-6)


async def test_a_served_report_can_rerank_as_far_as_the_models_rule_goes() -> None:
    gallery = make_gallery(scene_records("test", 1, 8), ["en"])
    asked = []

    async def search(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        asked.append(request.adaptive_depth)
        depth = 3 if request.adaptive_depth else request.rerank_k
        stop = "RERANK_STOP_ADAPTIVE" if request.adaptive_depth else "RERANK_STOP_COMPLETE"
        return pb.SearchItemsResponse(rerank=pb.RerankSummary(reranked_depth=depth, stop=stop))

    counted = AdaptiveDepth()
    async with search_server(search) as (address, _), AsyncClient(address) as client:
        for depth in (counted, None):
            await report_of(client, gallery, [20], query_count=2, adaptive_depth=depth)

    assert asked == [True] * 4 + [False] * 4
    assert (counted.read_count, counted.asked_count) == (12, 80)
    assert str(counted) == "12 of 80 pairs read, 15.0 %"


async def test_a_served_report_tells_which_captions_are_of_one_picture() -> None:
    gallery = make_gallery(scene_records("test", 1, 8), ["en"], captions_per_picture=2)

    async with search_server() as (address, _), AsyncClient(address) as client:
        every, some = [
            await report_of(client, gallery, [0, 20], query_count=count) for count in (None, 4)
        ]

    whole = gallery.query_pictures(Modality.IMAGE)
    assert whole == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
    asked = tuple(whole[number] for number in gallery.query_numbers(Modality.IMAGE, 4))
    for report, of_texts in ((every, whole), (some, asked)):
        expected = {"text→image": of_texts, "image→text": ()}
        assert all(each.pictures == expected[each.direction] for each in report.rankings)


@pytest.mark.parametrize(
    "count", [60, *(pytest.param(count, marks=pytest.mark.slow) for count in (100, 125, 250))]
)
async def test_no_count_meets_one_language_or_one_sibling_alone(count: int) -> None:
    """Languages take turns in sixteen, siblings in four: every 4th, 8th or 16th would be alike."""
    gallery = make_gallery(scene_records("test", 1, 1_000), ["en", "de", "fr", "cs"])

    async with search_server() as (address, service), AsyncClient(address) as client:
        report, again = [
            await report_of(client, gallery, [20], query_count=count, concurrency=1)
            for _ in range(2)
        ]

    requests = [each for each in service.requests if isinstance(each, pb.SearchItemsRequest)]
    asked = [each.query.text for each in requests if each.query.text]
    assert asked[:count] == asked[count:]
    for languages in report.languages.values():
        assert len(languages) == count
        assert min(map(languages.count, ("en", "de", "fr", "cs"))) >= count / 8
    number_of = {caption.text: number for number, (_, caption) in enumerate(gallery.pairs)}
    siblings = [number_of[text] % 4 for text in asked[:count]]
    assert min(map(siblings.count, range(4))) >= count / 8
    assert again.languages == report.languages
