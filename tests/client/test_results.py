"""What the SDK gives back: every field of the contract's answers, as plain Python."""

from dataclasses import replace

import pytest

from tandem.contract.content import ImageContent, Modality, TextContent, TextUse
from tandem.contract.field_wire import duration_to_proto
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.search.answer import (
    Coverage,
    Explanation,
    FoundItem,
    IngestOutcome,
    RerankSummary,
    ScoreTerm,
    SearchResult,
    StageSeconds,
)
from tandem.contract.search.answer_names import ErrorReason, RerankStopReason
from tandem.contract.search.answer_wire import result_from_proto, result_to_proto
from tandem.contract.search.ingest_wire import outcomes_from_proto
from tandem.errors import ImageUnreadable, InternalFault
from tandem.v1 import attribute_pb2, content_pb2, cost_pb2, error_reason_pb2
from tandem.v1 import search_service_pb2 as pb


def test_an_answer_by_hand() -> None:
    """What the cross-encoder did not score has no score; what was not asked for is not there."""
    response = pb.SearchItemsResponse(
        items=[
            pb.RankedItem(
                item_id="a",
                similarity=0.5,
                match_logit=0.0,
                match_probability=0.5,
                retrieve_rank=2,
                final_rank=1,
                content=content_pb2.Content(text="two dogs"),
            ),
            pb.RankedItem(item_id="b", similarity=0.75, retrieve_rank=1, final_rank=2),
            pb.RankedItem(item_id="c", content=content_pb2.Content(image=b"png")),
        ],
        model_fingerprint="f1",
        durations=pb.StageDurations(
            encode_duration=duration_to_proto(1.5),
            retrieve_duration=duration_to_proto(0.25),
            rerank_duration=duration_to_proto(0.125),
            fetch_duration=duration_to_proto(0.0),
            total_duration=duration_to_proto(2.0),
        ),
        coverage=pb.Coverage(
            answered_shard_count=2,
            shard_count=4,
            covered_item_count=30,
            item_count=60,
            missing_shards=[
                pb.MissingShard(
                    shard_number=3, reason=error_reason_pb2.ERROR_REASON_SERVICE_UNAVAILABLE
                ),
                pb.MissingShard(shard_number=1, reason=9999),  # type: ignore[arg-type]
            ],
        ),
    )

    assert result_from_proto(response) == SearchResult(
        items=(
            FoundItem("a", 0.5, 0.0, 0.5, 2, 1, TextContent("two dogs")),
            FoundItem("b", 0.75, None, None, 1, 2, None),
            FoundItem("c", 0.0, None, None, 0, 0, ImageContent(b"png")),
        ),
        model_fingerprint="f1",
        seconds=StageSeconds(encode=1.5, retrieve=0.25, rerank=0.125, fetch=0.0, total=2.0),
        coverage=Coverage(
            2,
            4,
            30,
            60,
            {
                3: ErrorReason.SERVICE_UNAVAILABLE,
                1: ErrorReason("9999"),
            },
        ),
    )
    assert not result_from_proto(response).coverage.is_full


def test_outcomes_by_hand() -> None:
    response = pb.IngestItemsResponse(
        results=[
            pb.IngestResult(item_id="a"),
            pb.IngestResult(
                item_id="b",
                error=error_reason_pb2.ItemError(
                    reason=error_reason_pb2.ERROR_REASON_IMAGE_UNREADABLE, message="cut short"
                ),
            ),
        ],
        consistency_token="token",
    )

    first, second = outcomes_from_proto(response)

    assert first == IngestOutcome("a", None, "token")
    assert second.consistency_token == "token"
    assert second.item_id == "b"
    assert isinstance(second.error, ImageUnreadable)
    assert second.error.message == "cut short"


@pytest.mark.parametrize("reason", [0, 9999])
def test_a_reason_of_a_newer_server_is_still_an_error(reason: int) -> None:
    """An item that was refused is never taken for stored."""
    error = error_reason_pb2.ItemError(reason=reason, message="too purple")  # type: ignore[arg-type]
    response = pb.IngestItemsResponse(results=[pb.IngestResult(item_id="a", error=error)])

    [outcome] = outcomes_from_proto(response)

    assert isinstance(outcome.error, InternalFault)
    assert "too purple" in outcome.error.message


def test_an_attribute_of_a_newer_type_is_left_out() -> None:
    """As is a content of a newer kind; the item is still there."""
    values = {"odd": attribute_pb2.AttributeValue(), "x": attribute_pb2.AttributeValue(integer=1)}
    response = pb.SearchItemsResponse(
        items=[pb.RankedItem(item_id="a", attributes=values, content=content_pb2.Content())]
    )

    [item] = result_from_proto(response).items

    assert (item.attributes, item.content) == ({"x": 1}, None)


def test_a_page_says_no_time_and_cost_of_what_it_did_not_do() -> None:
    """0.0 would be a stage that ran; a search has them all but that of neighbours."""
    page = result_from_proto(pb.SearchItemsResponse())
    searched = replace(page, seconds=replace(page.seconds, encode=0.5))

    sent, whole = result_to_proto(page), result_to_proto(searched)

    assert {field.name for field, _ in sent.durations.ListFields()} == {
        "fetch_duration", "total_duration", "rank_duration",
    }  # fmt: skip
    assert not sent.HasField("cost")
    assert len(whole.durations.ListFields()) == 6
    assert whole.HasField("cost")


def test_further_fields_of_an_answer_match_a_worked_example() -> None:
    response = pb.SearchItemsResponse(
        items=[
            pb.RankedItem(
                item_id="a",
                modality=content_pb2.MODALITY_IMAGE,
                score=0.75,
                explanation=pb.Explanation(
                    terms=[pb.ScoreTerm(name="similarity", value=1.5, weight=0.5)],
                    ranks=[
                        pb.StageRank(stage="retrieve", rank=3),
                        pb.StageRank(stage="rerank", rank=1),
                    ],
                ),
            ),
        ],
        durations=pb.StageDurations(rank_duration=duration_to_proto(0.5)),
        rerank=pb.RerankSummary(reranked_depth=7, stop=pb.RERANK_STOP_TIME, missing_count=2),
        degradations=[pb.DEGRADATION_RERANK_PARTIAL, 99],  # type: ignore[list-item]
        text_uses=[content_pb2.TextUse(token_count=80, used_token_count=64, truncated=True)],
        cost=cost_pb2.InferenceCost(pair_count=7, triton_queue_duration=duration_to_proto(0.25)),
        next_cursor=b"more",
    )

    result = result_from_proto(response)

    [item] = result.items
    assert (item.modality, item.score) == (Modality.IMAGE, 0.75)
    assert item.explanation == Explanation(
        (ScoreTerm("similarity", 1.5, 0.5),), {"retrieve": 3, "rerank": 1}
    )
    assert result.seconds.rank == 0.5
    assert result.rerank == RerankSummary(7, RerankStopReason.TIME, 2)
    assert result.degradations == ("RERANK_PARTIAL", "99")
    assert result.is_degraded
    assert result.text_uses == (TextUse(80, 64),)
    assert result.cost == InferenceCost(pair_count=7, triton_queue_seconds=0.25)
    assert result.next_cursor == b"more"
    assert not result_from_proto(pb.SearchItemsResponse()).is_degraded


def test_what_is_withheld_is_named_and_the_relevance_is_no_probability() -> None:
    """The relevance orders as the logits do, whether or not a model was calibrated."""
    response = pb.SearchItemsResponse(
        items=[
            pb.RankedItem(item_id="a", match_logit=0.0),
            pb.RankedItem(item_id="b", match_logit=9.0, match_probability=0.25),
            pb.RankedItem(item_id="c", similarity=-0.5),
        ],
        rerank=pb.RerankSummary(probability_withheld="ERROR_REASON_UNCALIBRATED"),
    )

    result = result_from_proto(response)

    assert result.rerank.probability_withheld == "UNCALIBRATED"
    assert [item.match_probability for item in result.items] == [None, 0.25, None]
    assert [item.relevance for item in result.items] == [0.5, 0.25, -0.5]
    assert result_from_proto(pb.SearchItemsResponse()).rerank.probability_withheld is None


def test_an_empty_answer_says_why_in_words() -> None:
    """The first mistake: texts are stored, and a text is searched for, which finds images."""
    response = pb.SearchItemsResponse()
    response.coverage.answered_shard_count = response.coverage.shard_count = 1
    assert "target_modality" in result_from_proto(response).why_empty

    response.coverage.covered_item_count = 5
    assert "a filter or a limit" in result_from_proto(response).why_empty

    response.items.add(item_id="a")
    assert result_from_proto(response).why_empty == ""
