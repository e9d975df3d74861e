"""Converts IndexService's messages to plain types and back, checking what comes in."""

from collections.abc import Iterable, Sequence

from index_svc.keywords.keyword_hit import KeywordFound
from index_svc.retrieval.hit import F32, Found
from index_svc.retrieval.query import Query
from index_svc.shard import MAX_READ_BYTES, Answer
from tandem.contract.attribute_wire import (
    attributes_from_proto,
    attributes_to_proto,
    filter_from_proto,
)
from tandem.contract.content import Encoding
from tandem.contract.identifiers import check_index_id, check_item_id, check_request_id
from tandem.contract.limits import (
    MAX_EMBEDDING_COUNT,
    MAX_ITEM_ID_COUNT,
    MAX_KEYWORDS_BYTES,
    MAX_PAGE_SIZE,
    MAX_RETRIEVE_K,
    MAX_UPSERT_ITEM_COUNT,
)
from tandem.contract.search_path import path_to_proto
from tandem.errors import (
    BatchSizeOutOfRange,
    ItemIdDuplicate,
    KOutOfRange,
    RequestMalformed,
    TokensInvalid,
)
from tandem.item_store.item_record import ItemRecord
from tandem.item_store.item_write import Delete, Upsert
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    duration_to_proto,
    embedding_from_proto,
    embedding_to_proto,
    embeddings_from_proto,
    modality_from_proto,
    tokens_from_proto,
    tokens_to_proto,
)

MAX_FINGERPRINT_LENGTH = 128


def query_from_proto(request: pb.SearchEmbeddingsRequest) -> Query:
    """Returns the query of a request.

    Raises IndexIdInvalid, KOutOfRange, BatchSizeOutOfRange, EmbeddingInvalid, FilterInvalid,
    RequestMalformed.
    """
    if not 1 <= request.retrieve_k <= MAX_RETRIEVE_K:
        raise KOutOfRange(name="retrieve_k", got=request.retrieve_k, low=1, high=MAX_RETRIEVE_K)
    _check_batch_size("queries", len(request.queries), MAX_EMBEDDING_COUNT)
    modality = modality_from_proto(request.modality)
    if modality is None:
        raise RequestMalformed(why="modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
    if request.minimum_sequence < 0:
        raise RequestMalformed(why=f"minimum_sequence is {request.minimum_sequence}")
    return Query(
        index_id=check_index_id(request.index_id),
        fingerprint=check_fingerprint(request.model_fingerprint),
        modality=modality,
        query_modality=modality_from_proto(request.query_modality) or modality.other,
        embeddings=[embedding_from_proto(query) for query in request.queries],
        k=request.retrieve_k,
        minimum_sequence=request.minimum_sequence,
        where=filter_from_proto(request.filter) if request.HasField("filter") else None,
        are_embeddings_included=request.embeddings_included,
        keywords=check_keywords(request.keywords),
    )


def upsert_from_proto(request: pb.UpsertItemsRequest) -> Upsert:
    """Returns the items to store.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, ItemIdDuplicate, ContentMissing,
    EmbeddingInvalid, TokensInvalid, AttributeInvalid, RequestIdInvalid, RequestMalformed.
    """
    _check_batch_size("items", len(request.items), MAX_UPSERT_ITEM_COUNT)
    _check_different(item.item_id for item in request.items)
    embeddings_ND = embeddings_from_proto([item.embedding for item in request.items])
    items = [
        _item_from_proto(item, embedding_D)
        for item, embedding_D in zip(request.items, embeddings_ND, strict=True)
    ]
    return Upsert(
        index_id=check_index_id(request.index_id),
        fingerprint=check_fingerprint(request.model_fingerprint),
        items=items,
        request_id=check_request_id(request.request_id),
    )


def delete_from_proto(request: pb.DeleteItemsRequest) -> Delete:
    """Returns the items to delete.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestIdInvalid.
    """
    _check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_ID_COUNT)
    item_ids = [check_item_id(item_id) for item_id in request.item_ids]
    return Delete(check_index_id(request.index_id), item_ids, check_request_id(request.request_id))


def get_from_proto(request: pb.GetItemsRequest) -> tuple[str, list[str], int]:
    """Returns the index id, the item ids to read, and the most bytes to read.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestMalformed.
    """
    if request.max_bytes < 0:
        raise RequestMalformed(why=f"max_bytes is {request.max_bytes}")
    _check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_ID_COUNT)
    item_ids = [check_item_id(item_id) for item_id in request.item_ids]
    return check_index_id(request.index_id), item_ids, request.max_bytes or MAX_READ_BYTES


def list_from_proto(request: pb.ListItemIdsRequest) -> tuple[str, str, int]:
    """Returns the index id, the id after which to list, and how many to list.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid.
    """
    _check_batch_size("item_ids", request.max_count, MAX_PAGE_SIZE)
    after = check_item_id(request.after) if request.after else ""
    return check_index_id(request.index_id), after, request.max_count


def check_page(count: int, index_ids: Sequence[str]) -> None:
    """Raises BatchSizeOutOfRange for a page that is too large, or is of too many indexes."""
    _check_batch_size("indexes", count, MAX_PAGE_SIZE)
    if index_ids:
        _check_batch_size("index_ids", len(index_ids), MAX_PAGE_SIZE)


def answer_to_proto(answer: Answer, search_seconds: float) -> pb.SearchEmbeddingsResponse:
    """Returns the response to a search."""
    return pb.SearchEmbeddingsResponse(
        hit_lists=[_hit_list_to_proto(found) for found in answer.found],
        search_duration=duration_to_proto(search_seconds),
        applied_sequence=answer.applied_sequence,
        item_count=answer.item_count,
        path=path_to_proto(answer.found[-1].path),
        keyword_hit_list=None
        if answer.keyword_found is None
        else _keyword_hits_to_proto(answer.keyword_found),
    )


def items_to_proto(items: Iterable[ItemRecord], *, content_included: bool = True) -> list[pb.Item]:
    """Returns the messages of items with attributes, and with contents if they are included."""
    return [
        pb.Item(
            item_id=item.item_id,
            content=content_to_proto(item.content) if content_included else None,
            attributes=attributes_to_proto(item.attributes),
        )
        for item in items
    ]


def encoded_items_to_proto(items: Iterable[ItemRecord]) -> list[pb.EncodedItem]:
    """Returns the messages of items with their encodings too."""
    return [
        pb.EncodedItem(
            item_id=item.item_id,
            content=content_to_proto(item.content),
            embedding=embedding_to_proto(item.encoding.embedding),
            tokens=tokens_to_proto(item.encoding.tokens),
            attributes=attributes_to_proto(item.attributes),
        )
        for item in items
    ]


def check_fingerprint(fingerprint: str) -> str:
    """Returns the fingerprint; raises RequestMalformed for an empty or too long one."""
    # An index keeps the first fingerprint it gets, so an empty one would stay.
    if not 1 <= len(fingerprint) <= MAX_FINGERPRINT_LENGTH:
        raise RequestMalformed(
            why=f"model_fingerprint has {len(fingerprint)} characters, "
            f"not 1 to {MAX_FINGERPRINT_LENGTH}"
        )
    return fingerprint


def _hit_list_to_proto(found: Found) -> pb.HitList:
    # Embeddings are unit vectors within a tolerance, so a product may slightly exceed 1.
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


def _item_from_proto(message: pb.EncodedItem, embedding_D: F32) -> ItemRecord:
    content = content_from_proto(message.content)
    tokens = tokens_from_proto(message.tokens, may_be_empty=True)
    if tokens.modality is not content.modality:
        raise TokensInvalid(
            why=f"they are of {tokens.modality.value}, but the content is {content.modality.value}"
        )
    return ItemRecord(
        check_item_id(message.item_id),
        content,
        Encoding(embedding_D, tokens),
        attributes_from_proto(message.attributes),
    )


def check_keywords(keywords: str) -> str:
    """Returns the words; raises RequestMalformed for too long ones."""
    # len() first: a long text need not be encoded.
    if len(keywords) > MAX_KEYWORDS_BYTES or len(keywords.encode()) > MAX_KEYWORDS_BYTES:
        raise RequestMalformed(why=f"keywords have more than {MAX_KEYWORDS_BYTES:,} bytes")
    return keywords


def _check_batch_size(name: str, count: int, high: int) -> None:
    if not 1 <= count <= high:
        raise BatchSizeOutOfRange(name=name, got=count, low=1, high=high)


def _check_different(item_ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for item_id in item_ids:
        if item_id in seen:
            raise ItemIdDuplicate(item_id=item_id)
        seen.add(item_id)
