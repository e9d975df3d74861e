"""Converts queries from and to messages."""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from google.protobuf.message import Message

from tandem.contract.content import Content, Modality, TruncationPolicy
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.fusion import FusionMethod, HybridFusion
from tandem.contract.record_wire import Field, RecordWire, by_name
from tandem.contract.search.answer_wire import content_from_proto, content_to_proto
from tandem.contract.search.item_changes_wire import filter_from_proto
from tandem.contract.search.query import (
    FLAGS,
    Depth,
    GivenEncoding,
    HybridRule,
    PageQuery,
    SearchQuery,
    StoredItem,
    WeightedPart,
)
from tandem.errors import (
    CursorInvalid,
    EmbeddingInvalid,
    QueryInvalid,
    RankingInvalid,
)
from tandem.v1 import attribute_pb2, content_pb2
from tandem.v1 import search_service_pb2 as pb

_COUNTS = ("retrieve_k", "rerank_k", "return_n")
_DIVERSITY = ("relevance_weight", "duplicate_similarity")


def query_from_proto(request: pb.SearchItemsRequest) -> SearchQuery:
    """Returns the query; raises what is wrong with it, as far as the message alone shows."""
    parts = _parts(request)
    options: dict[str, Any] = {name: getattr(request, name) for name in FLAGS}
    options |= _given(request, *_COUNTS, "min_probability", "max_false_answer_rate")
    options |= _given(request.diversity, *_DIVERSITY)
    options |= _given(request.fusion, "cross_encoder_weight")
    if request.fusion.method:
        options["fusion"] = _fusion(request.fusion.method)
    if request.HasField("hybrid"):
        options |= _hybrid(request.hybrid)
    if request.target_modality:
        options["target_modality"] = _target(request.target_modality)
    return SearchQuery.of(
        parts,
        index_id=request.index_id,
        where=filter_from_proto(request),
        options=options
        | {
            "consistency_tokens": request.consistency_tokens,
            "truncation_policy": TRUNCATION_POLICY_WIRE.from_proto(request.truncation_policy),
        },
    )


def query_to_proto(query: SearchQuery) -> pb.SearchItemsRequest:
    """Returns the message of a query."""
    ranking = query.ranking
    request = pb.SearchItemsRequest(
        index_id=query.index_id,
        min_probability=ranking.min_probability,
        max_false_answer_rate=ranking.max_false_answer_rate,
        filter=attribute_pb2.Filter.FromString(query.filter.message) if query.filter else None,
        consistency_tokens=query.consistency_tokens,
        **{name: getattr(query, name) for name in FLAGS},
    )
    # What is as usual is left to the server, whose defaults may be newer.
    if query.depth != Depth.of(None, None, None):
        for name in _COUNTS:
            setattr(request, name, getattr(query.depth, name))
    if not query.is_usual_target:
        request.target_modality = MODALITY_WIRE.to_proto(query.target_modality)
    if query.truncation_policy is not TruncationPolicy.ERROR:
        request.truncation_policy = TRUNCATION_POLICY_WIRE.to_proto(query.truncation_policy)
    if ranking.fusion is not None:
        request.fusion.method = FUSION_WIRE.to_proto(ranking.fusion)
        if ranking.cross_encoder_weight is not None:
            request.fusion.cross_encoder_weight = ranking.cross_encoder_weight
    if ranking.are_embeddings_needed:
        for name in _DIVERSITY:
            if (value := getattr(ranking, name)) is not None:
                setattr(request.diversity, name, value)
    if query.hybrid is not None:
        request.hybrid.CopyFrom(_HYBRID_RULE_WIRE.to_proto(query.hybrid))
    match query.parts:
        case [WeightedPart(source, 1.0)] if isinstance(source, Content):
            request.query.CopyFrom(content_to_proto(source))
        case parts:
            request.query_parts.extend(map(_part_to_proto, parts))
    return request


def page_query_from_proto(request: pb.SearchItemsRequest) -> PageQuery:
    """Returns the query of a page; raises CursorInvalid for another option of a search."""
    names = {each.name for each in fields(PageQuery)}
    unexpected = [field.name for field, _ in request.ListFields() if field.name not in names]
    if unexpected:
        raise CursorInvalid(why=f"{unexpected[0]} cannot be set with a cursor")
    return _PAGE_QUERY_WIRE.from_proto(request)


def searched_to_proto(query: SearchQuery | PageQuery) -> pb.SearchItemsRequest:
    """Returns the message of a query, or of that of a page."""
    if isinstance(query, PageQuery):
        return _PAGE_QUERY_WIRE.to_proto(query)
    return query_to_proto(query)


def _given_from_proto(message: pb.GivenEncoding) -> GivenEncoding:
    """Returns a caller's own encoding; who searches by it checks its values."""
    tokens = message.tokens if message.HasField("tokens") else None
    modality = MODALITY_WIRE.from_proto(message.modality)
    if modality is None and tokens is not None and (kind := tokens.WhichOneof("tokens")):
        modality = Modality(kind)
    if modality is None:
        raise QueryInvalid(why="a given encoding has no modality; send one")
    values = array("f")
    try:
        values.frombytes(message.embedding.values)
    except ValueError:
        byte_count = len(message.embedding.values)
        raise EmbeddingInvalid(why=f"{byte_count} bytes are not float32 values") from None
    if sys.byteorder == "big":
        values.byteswap()
    return GivenEncoding(values, message.model_fingerprint, modality, tokens)


_POLICY_WIRE = by_name(TruncationPolicy, content_pb2.TruncationPolicy, "TRUNCATION_POLICY_")
TRUNCATION_POLICY_WIRE = Field[TruncationPolicy, TruncationPolicy](
    _POLICY_WIRE.to_proto, lambda value: _POLICY_WIRE.from_proto(value) or TruncationPolicy.ERROR
)
"""Reads one that is unspecified or unknown as ERROR."""
FUSION_WIRE = by_name(FusionMethod, pb.FusionMethod, "FUSION_METHOD_")
"""Reads one that is unspecified or unknown as None."""
_HYBRID_FUSION_WIRE = by_name(HybridFusion, pb.HybridFusion, "HYBRID_FUSION_")
_HYBRID_RULE_WIRE = RecordWire(HybridRule, pb.HybridSearch, fusion=_HYBRID_FUSION_WIRE)
_PAGE_QUERY_WIRE = RecordWire(PageQuery, pb.SearchItemsRequest)


def _given(message: Message, *names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def _target(value: int) -> Modality:
    if (found := MODALITY_WIRE.from_proto(value)) is None:
        raise QueryInvalid(why=f"target_modality {value} is unknown; send a Modality")
    return found


def _fusion(value: int) -> FusionMethod:
    if (method := FUSION_WIRE.from_proto(value)) is None:
        raise RankingInvalid(why=f"fusion method {value} is unknown; send a FusionMethod")
    return method


def _hybrid(message: pb.HybridSearch) -> dict[str, Any]:
    options: dict[str, Any] = {"hybrid": True, "keywords": message.keywords}
    options |= _given(message, "keyword_weight")
    if message.fusion:
        if (fusion := _HYBRID_FUSION_WIRE.from_proto(message.fusion)) is None:
            raise RankingInvalid(
                why=f"hybrid fusion {message.fusion} is unknown; send a HybridFusion"
            )
        options["hybrid_fusion"] = fusion
    return options


def _parts(request: pb.SearchItemsRequest) -> Sequence[WeightedPart]:
    if request.HasField("query"):
        if request.query_parts:
            raise QueryInvalid(why="query and query_parts are both set; set one of them")
        return (WeightedPart(content_from_proto(request.query)),)
    if not request.query_parts:
        raise QueryInvalid(why="neither query nor query_parts nor cursor is set; set one of them")
    return tuple(map(_part_from_proto, request.query_parts))


def _part_from_proto(message: pb.QueryPart) -> WeightedPart:
    weight = message.weight if message.HasField("weight") else 1.0
    match message.WhichOneof("source"):
        case "content":
            return WeightedPart(content_from_proto(message.content), weight)
        case "item_id":
            return WeightedPart(StoredItem(message.item_id), weight)
        case "encoding":
            return WeightedPart(_given_from_proto(message.encoding), weight)
        case _:
            raise QueryInvalid(why="a part has neither content nor item_id nor encoding; send one")


def _part_to_proto(part: WeightedPart) -> pb.QueryPart:
    match part.source:
        case StoredItem(item_id):
            return pb.QueryPart(item_id=item_id, weight=part.weight)
        case GivenEncoding() as given:
            return pb.QueryPart(encoding=_given_to_proto(given), weight=part.weight)
        case content:
            return pb.QueryPart(content=content_to_proto(content), weight=part.weight)


def _given_to_proto(given: GivenEncoding) -> pb.GivenEncoding:
    """Returns the message of a caller's own encoding."""
    values = array("f", given.embedding)
    if sys.byteorder == "big":
        values.byteswap()
    return pb.GivenEncoding(
        embedding=content_pb2.Embedding(values=values.tobytes()),
        tokens=given.tokens,
        modality=MODALITY_WIRE.to_proto(given.modality),
        model_fingerprint=given.model_fingerprint,
    )
