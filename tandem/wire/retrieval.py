"""Converts a shard's queries and answers to messages and back."""

from collections.abc import Iterable

import numpy as np

from tandem.contract.field_wire import MODALITY_WIRE, duration_to_proto
from tandem.contract.filtering.attribute_wire import CheckedFilter, checked_filter
from tandem.contract.index_description import PARTS_WIRE
from tandem.contract.record_wire import Field, RecordWire, numbered, repeated
from tandem.contract.search_path import PATH_WIRE, KeywordState, SearchPath
from tandem.errors import InternalFault, RequestMalformed
from tandem.stages.retrieval import ShardDescription, ShardQuery
from tandem.stages.shard_answer import F32, Found, KeywordFound, RowHit, ShardAnswer, WordHit
from tandem.v1 import attribute_pb2 as pb_attribute
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import (
    EMBEDDING_WIRE,
    embedding_to_proto,
    embeddings_from_proto,
)

QUERY_WIRE = RecordWire(
    ShardQuery,
    pb.SearchEmbeddingsRequest,
    own=["query_modality"],
    fingerprint="model_fingerprint",
    modality=MODALITY_WIRE,
    embeddings=repeated(EMBEDDING_WIRE).named("queries"),
    filter=Field[CheckedFilter, CheckedFilter](
        lambda checked: pb_attribute.Filter.FromString(checked.message), checked_filter
    ),
)
DESCRIPTION_WIRE = RecordWire(
    ShardDescription,
    pb.DescribeShardIndexResponse,
    fingerprint="model_fingerprint",
    parts=PARTS_WIRE,
    keyword_state=numbered(KeywordState),
)


def query_to_proto(query: ShardQuery, shard_map_version: int) -> pb.SearchEmbeddingsRequest:
    """Returns the request for a query."""
    return QUERY_WIRE.to_proto(
        query,
        query_modality=MODALITY_WIRE.to_proto(query.query_modality),
        shard_map_version=shard_map_version,
    )


def query_from_proto(request: pb.SearchEmbeddingsRequest) -> ShardQuery:
    """Returns the query of a request.

    Raises what ShardQuery raises, EmbeddingInvalid, FilterInvalid and RequestMalformed.
    """
    modality = MODALITY_WIRE.from_proto(request.modality)
    if modality is None:
        raise RequestMalformed(why="modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
    query_modality = MODALITY_WIRE.from_proto(request.query_modality) or modality.other
    return QUERY_WIRE.from_proto(request, query_modality=query_modality)


def answer_to_proto(answer: ShardAnswer) -> pb.SearchEmbeddingsResponse:
    """Returns the response to a search."""
    return pb.SearchEmbeddingsResponse(
        hit_lists=[_hit_list_to_proto(found) for found in answer.found],
        search_duration=duration_to_proto(answer.search_seconds),
        applied_sequence=answer.applied_sequence,
        item_count=answer.item_count,
        path=PATH_WIRE.to_proto(answer.found[-1].path),
        keyword_hit_list=None
        if answer.keyword_found is None
        else _keyword_hits_to_proto(answer.keyword_found),
    )


def answer_from_proto(
    response: pb.SearchEmbeddingsResponse, query: ShardQuery, shard: str
) -> ShardAnswer:
    """Returns the answer of the shard of that name; raises InternalFault for an incomplete one."""
    count = len(query.embeddings)
    if len(response.hit_lists) != count:
        raise InternalFault(why=f"{shard} answered {len(response.hit_lists)} of {count} queries")
    path = PATH_WIRE.from_proto(response.path)
    return ShardAnswer(
        [_found_from_proto(each, query, path) for each in response.hit_lists],
        response.applied_sequence,
        response.item_count,
        _keyword_found_from_proto(response.keyword_hit_list, query, shard)
        if query.keywords
        else None,
    )


def _hit_list_to_proto(found: Found) -> pb.HitList:
    hit_list = pb.HitList(
        hits=[
            pb.Hit(item_id=hit.item_id, similarity=min(1.0, max(-1.0, hit.similarity)))
            for hit in found.hits
        ]
    )
    if found.embeddings is not None:
        for message, embedding_D in zip(hit_list.hits, found.embeddings, strict=True):
            message.embedding.CopyFrom(embedding_to_proto(embedding_D))
    return hit_list


def _found_from_proto(message: pb.HitList, query: ShardQuery, path: SearchPath) -> Found:
    hits = [RowHit(hit.item_id, hit.similarity) for hit in message.hits]
    return Found(hits, path, _embeddings_of(message.hits) if query.embeddings_included else None)


def _embeddings_of(hits: Iterable[pb.Hit | pb.KeywordHit]) -> F32 | None:
    """Returns the embeddings of hits; None of no hits."""
    messages = [hit.embedding for hit in hits if hit.HasField("embedding")]
    if len(messages) != len(list(hits)):
        raise InternalFault(why="a shard of an earlier version gives no embeddings; update it")
    return embeddings_from_proto(messages) if messages else None


def _keyword_hits_to_proto(found: KeywordFound) -> pb.KeywordHitList:
    message = pb.KeywordHitList(
        state=found.state.value,
        hits=[
            pb.KeywordHit(
                item_id=hit.item_id,
                score=hit.score,
                similarities=[
                    min(1.0, max(-1.0, float(each[place]))) for each in found.similarities
                ],
            )
            for place, hit in enumerate(found.hits)
        ],
    )
    if found.embeddings is not None:
        for hit, embedding_D in zip(message.hits, found.embeddings, strict=True):
            hit.embedding.CopyFrom(embedding_to_proto(embedding_D))
    return message


def _keyword_found_from_proto(
    message: pb.KeywordHitList, query: ShardQuery, shard: str
) -> KeywordFound:
    count = len(query.embeddings)
    if any(len(hit.similarities) != count for hit in message.hits):
        raise InternalFault(
            why=f"{shard} answered words without a similarity to each of {count} queries"
        )
    similarities = np.array([hit.similarities for hit in message.hits], np.float32)
    return KeywordFound(
        KeywordState(message.state),
        [WordHit(hit.item_id, hit.score) for hit in message.hits],
        list(similarities.reshape(-1, count).T),
        _embeddings_of(message.hits) if query.embeddings_included else None,
    )
