"""What score_documents sends, and what it reads of the answer."""

from dataclasses import replace
from typing import Any

import pytest

from tandem.client import NewDocument, RegionContent, StoredItem, TruncationPolicy
from tandem.client.query import document_query
from tandem.contract.search.documents import DOCUMENT_QUERY_WIRE, SCORED_WIRE
from tandem.errors import (
    IndexIdInvalid,
    ItemIdInvalid,
    ItemNotFound,
    RequestMalformed,
    TextTooLong,
    Uncalibrated,
)
from tandem.v1 import content_pb2, content_service_pb2, error_reason_pb2


def request_of(*arguments: Any) -> content_service_pb2.ScoreDocumentsRequest:
    """Returns the message."""
    return DOCUMENT_QUERY_WIRE.to_proto(document_query(*arguments))


def test_each_document_is_sent_with_its_own_type() -> None:
    regions = RegionContent(b"\0\0" * 4, b"\0\0\0\0" * 4, 1, 4, 1, 1)
    documents: list[NewDocument] = ["a text", b"a file", StoredItem("a"), regions]
    request = request_of("one cat", documents, "pets", TruncationPolicy.TRUNCATE)

    sources = [each.WhichOneof("source") for each in request.documents]
    assert request.query.text == "one cat"
    assert sources == ["content", "content", "item_id", "content"]
    assert request.documents[0].content.text == "a text"
    assert request.documents[1].content.image == b"a file"
    assert request.documents[2].item_id == "a"
    assert request.documents[3].content.regions.region_count == 1
    assert request.index_id == "pets"
    assert request.truncation_policy == content_pb2.TRUNCATION_POLICY_TRUNCATE


def test_unsendable_values_are_refused_by_name() -> None:
    with pytest.raises(IndexIdInvalid):
        request_of("a", ["b"], "No Index", TruncationPolicy.ERROR)
    with pytest.raises(ItemIdInvalid):
        request_of("a", [StoredItem("")], "pets", TruncationPolicy.ERROR)
    with pytest.raises(RequestMalformed, match="a document"):
        request_of("a", ["\ud83d"], "", TruncationPolicy.ERROR)


def test_of_a_text_that_may_be_cut_no_more_is_sent_than_a_model_reads() -> None:
    """So that one long passage does not refuse the others."""
    request = request_of("a", ["é" * 100_000, "b"], "", TruncationPolicy.TRUNCATE)
    assert request.documents[0].content.text == "é" * 32_768

    with pytest.raises(TextTooLong):
        request_of("a", ["é" * 100_000], "", TruncationPolicy.ERROR)


def test_a_missing_score_is_none_and_zero_is_zero() -> None:
    error = error_reason_pb2.ItemError(
        reason=error_reason_pb2.ERROR_REASON_ITEM_NOT_FOUND, message="there is no item b"
    )
    answer = SCORED_WIRE.from_proto(
        content_service_pb2.ScoreDocumentsResponse(
            scores=[
                content_service_pb2.DocumentScore(match_logit=0.0, match_probability=0.5),
                content_service_pb2.DocumentScore(similarity=0.25),
                content_service_pb2.DocumentScore(error=error),
            ],
            model_fingerprint="f1",
            reranker="r1",
        )
    )

    first, second, third = answer.scores
    assert (first.match_logit, first.match_probability, first.similarity) == (0.0, 0.5, None)
    assert (second.match_logit, second.match_probability, second.similarity) == (None, None, 0.25)
    assert (first.error, second.error) == (None, None)
    assert isinstance(third.error, ItemNotFound)
    assert third.error.message == "there is no item b"
    assert (answer.model_fingerprint, answer.reranker) == ("f1", "r1")
    # An error is last.
    assert [place for place, _ in answer.best()] == [0, 1, 2]
    assert answer.best(1) == [(0, first)]
    assert answer.best(0) == []
    with pytest.raises(ValueError, match="-1 documents cannot be kept"):
        answer.best(-1)
    with pytest.raises(Uncalibrated, match="rerank texts and images apart"):
        replace(answer, scales_differ=True).best()
