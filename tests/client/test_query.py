"""Queries of every form and every option, as they are sent."""

from __future__ import annotations

import struct

import pytest

from tandem.client import GivenEncoding, Query, QueryPart, Search, SearchOptions, StoredItem
from tandem.contract.content import Modality, TruncationPolicy
from tandem.contract.fusion import FusionMethod, HybridFusion
from tandem.contract.search.query import SearchQuery
from tandem.contract.search.query_wire import searched_to_proto
from tandem.errors import (
    ItemIdInvalid,
    KOutOfRange,
    QueryInvalid,
    RankingInvalid,
    RequestMalformed,
)
from tandem.v1 import content_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.messages import search_request

TOKENS = content_pb2.ContentTokens(text=content_pb2.TextTokens(ids=b"1234"))


def test_every_option_is_sent() -> None:
    """Each in its field; there is no field of a search that the SDK cannot set."""
    options = SearchOptions(
        target_modality=Modality.TEXT,
        all_modalities_included=True,
        retrieve_k=30,
        rerank_k=20,
        return_n=10,
        rerank_required=True,
        neighbours_enabled=True,
        neighbours_required=True,
        fusion=FusionMethod.NORMALISED_ADD,
        cross_encoder_weight=0.25,
        min_probability=0.5,
        relevance_weight=0.75,
        duplicate_similarity=0.875,
        explained=True,
        truncation_policy=TruncationPolicy.TRUNCATE,
        content_included=True,
        attributes_included=True,
        consistency_tokens=["token"],
        full_coverage_required=True,
        keywords="red cup",
    )

    request = search_request("a cup", index_id="scenes", **options)

    expected = pb.SearchItemsRequest(
        query=content_pb2.Content(text="a cup"),
        index_id="scenes",
        target_modality="MODALITY_TEXT",
        all_modalities_included=True,
        retrieve_k=30,
        rerank_k=20,
        return_n=10,
        rerank_required=True,
        neighbours_enabled=True,
        neighbours_required=True,
        fusion=pb.Fusion(method="FUSION_METHOD_NORMALISED_ADD", cross_encoder_weight=0.25),
        min_probability=0.5,
        diversity=pb.Diversity(relevance_weight=0.75, duplicate_similarity=0.875),
        explained=True,
        truncation_policy="TRUNCATION_POLICY_TRUNCATE",
        content_included=True,
        attributes_included=True,
        consistency_tokens=["token"],
        full_coverage_required=True,
    )
    expected.hybrid.keywords = "red cup"
    expected.hybrid.fusion = pb.HYBRID_FUSION_RECIPROCAL_RANK
    expected.hybrid.keyword_weight = 0.5
    assert request == expected
    sent = {field.name for field, _ in request.ListFields()}
    fields = {field.name for field in pb.SearchItemsRequest.DESCRIPTOR.fields}
    # The SDK parses a filter's text itself; three options are none of a search like this one.
    others = {"filter", "filter_text", "query_parts", "cursor", "rerank_disabled", "adaptive_depth"}
    assert fields - sent == others | {"max_false_answer_rate"}
    promised = search_request("a cup", index_id="scenes", max_false_answer_rate=0.05)
    assert promised.max_false_answer_rate == 0.05
    assert search_request("a cup", index_id="scenes", rerank_disabled=True).rerank_disabled
    assert search_request("a cup", index_id="scenes", adaptive_depth=True).adaptive_depth
    batched = Search("a cup", index_id="scenes", **options).query
    assert isinstance(batched, SearchQuery)
    assert searched_to_proto(batched) == request


def test_enums_may_be_named_and_what_is_none_is_not_set() -> None:
    named = search_request(
        "a cup",
        index_id="scenes",
        target_modality="image",
        fusion="ADD",
        hybrid_fusion="z_score",
        truncation_policy="Truncate",
        **dict.fromkeys(("rerank_k", "hybrid", "consistency_tokens", "where", "explained")),
    )

    assert named == search_request(
        "a cup",
        index_id="scenes",
        target_modality=Modality.IMAGE,
        fusion=FusionMethod.ADD,
        hybrid_fusion=HybridFusion.Z_SCORE,
        truncation_policy=TruncationPolicy.TRUNCATE,
    )


def test_a_query_that_means_nothing_is_refused_before_it_is_sent() -> None:
    with pytest.raises(RankingInvalid, match="cross_encoder_weight applies only"):
        search_request("a cup", index_id="scenes", cross_encoder_weight=0.0)
    with pytest.raises(KOutOfRange):
        search_request("a cup", index_id="scenes", retrieve_k=0)
    with pytest.raises(QueryInvalid, match="0 parts"):
        search_request([], index_id="scenes")
    varied = search_request("a cup", index_id="scenes", relevance_weight=0.0)

    assert varied.diversity.HasField("relevance_weight")
    assert not varied.diversity.HasField("duplicate_similarity")
    refused = Search("a cup", index_id="scenes", cross_encoder_weight=0.0).query
    assert isinstance(refused, RankingInvalid)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (StoredItem("photo-7"), [pb.QueryPart(item_id="photo-7", weight=1.0)]),
        (
            [QueryPart("at night"), QueryPart(b"png", 0.5), QueryPart(StoredItem("a"), -0.25)],
            [
                pb.QueryPart(content=content_pb2.Content(text="at night"), weight=1.0),
                pb.QueryPart(content=content_pb2.Content(image=b"png"), weight=0.5),
                pb.QueryPart(item_id="a", weight=-0.25),
            ],
        ),
        (
            GivenEncoding((0.6, 0.8), "f1", Modality.TEXT, TOKENS),
            [
                pb.QueryPart(
                    encoding=pb.GivenEncoding(
                        embedding=content_pb2.Embedding(values=struct.pack("<2f", 0.6, 0.8)),
                        model_fingerprint="f1",
                        modality="MODALITY_TEXT",
                        tokens=TOKENS,
                    ),
                    weight=1.0,
                )
            ],
        ),
    ],
)
def test_a_query_of_each_form_is_sent(query: Query, parts: list[pb.QueryPart]) -> None:
    request = search_request(query, index_id="scenes", target_modality="image")

    assert list(request.query_parts) == parts
    assert not request.HasField("query")


def test_unsendable_arguments_are_refused_by_name() -> None:
    with pytest.raises(RequestMalformed):
        search_request([QueryPart("dog \ud800")], index_id="scenes")
    with pytest.raises(ItemIdInvalid):
        search_request(StoredItem(""), index_id="scenes")
