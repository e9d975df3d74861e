"""IndexService's messages, checked on the way in.

Plain functions without the shard: what they refuse touches nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from index_svc.flat_index import F32, Hit
from tandem.content import Encoding, Modality
from tandem.corpus.item_record import StoredItem
from tandem.corpus.item_write import Delete, Upsert
from tandem.errors import (
    BatchSizeOutOfRange,
    EmbeddingInvalid,
    ItemIdDuplicate,
    KOutOfRange,
    RequestMalformed,
    TokensInvalid,
)
from tandem.identifiers import check_index_id, check_item_id, check_request_id
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    embedding_from_proto,
    modality_from_proto,
    tokens_from_proto,
)

MAX_QUERY_COUNT = 64
MAX_ITEM_COUNT = 256
MAX_RETRIEVE_K = 1000
MAX_FINGERPRINT_LENGTH = 128


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """A checked SearchEmbeddingsRequest."""

    index_id: str
    fingerprint: str
    modality: Modality
    queries: Sequence[F32]
    k: int


def search_from_proto(request: pb.SearchEmbeddingsRequest) -> Search:
    """Returns what to search for.

    Raises IndexIdInvalid, KOutOfRange, BatchSizeOutOfRange, EmbeddingInvalid, RequestMalformed.
    """
    if not 1 <= request.retrieve_k <= MAX_RETRIEVE_K:
        raise KOutOfRange(name="retrieve_k", got=request.retrieve_k, low=1, high=MAX_RETRIEVE_K)
    _check_batch_size("queries", len(request.queries), MAX_QUERY_COUNT)
    modality = modality_from_proto(request.modality)
    if modality is None:
        raise RequestMalformed(why="modality is neither MODALITY_TEXT nor MODALITY_IMAGE")
    return Search(
        index_id=check_index_id(request.index_id),
        fingerprint=_check_fingerprint(request.model_fingerprint),
        modality=modality,
        queries=[embedding_from_proto(query) for query in request.queries],
        k=request.retrieve_k,
    )


def upsert_from_proto(request: pb.UpsertItemsRequest) -> Upsert:
    """Returns what to store.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, ItemIdDuplicate, ContentMissing,
    EmbeddingInvalid, TokensInvalid, RequestIdInvalid, RequestMalformed.
    """
    _check_batch_size("items", len(request.items), MAX_ITEM_COUNT)
    _check_different(item.item_id for item in request.items)
    items = [_item_from_proto(item) for item in request.items]
    dimension = len(items[0].encoding.embedding)
    for item in items:
        if len(item.encoding.embedding) != dimension:
            got = len(item.encoding.embedding)
            raise EmbeddingInvalid(why=f"it has {got} dimensions, the batch's first {dimension}")
    return Upsert(
        index_id=check_index_id(request.index_id),
        fingerprint=_check_fingerprint(request.model_fingerprint),
        items=items,
        request_id=check_request_id(request.request_id),
    )


def delete_from_proto(request: pb.DeleteItemsRequest) -> Delete:
    """Returns what to delete.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestIdInvalid.
    """
    _check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_COUNT)
    item_ids = [check_item_id(item_id) for item_id in request.item_ids]
    return Delete(check_index_id(request.index_id), item_ids, check_request_id(request.request_id))


def get_from_proto(request: pb.GetItemsRequest) -> tuple[str, list[str]]:
    """Returns the index id and the item ids to read.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid.
    """
    _check_batch_size("item_ids", len(request.item_ids), MAX_ITEM_COUNT)
    item_ids = [check_item_id(item_id) for item_id in request.item_ids]
    return check_index_id(request.index_id), item_ids


def hit_lists_to_proto(hit_lists: Iterable[Sequence[Hit]]) -> list[pb.HitList]:
    """Returns each query's hits as messages."""
    # Lengths are 1 to within the tolerance, so a product may come out a little over 1.
    return [
        pb.HitList(
            hits=[
                pb.Hit(item_id=hit.item_id, similarity=min(1.0, max(-1.0, hit.similarity)))
                for hit in hits
            ]
        )
        for hits in hit_lists
    ]


def items_to_proto(items: Iterable[StoredItem]) -> list[pb.Item]:
    """Returns items with their contents as messages."""
    return [pb.Item(item_id=item.item_id, content=content_to_proto(item.content)) for item in items]


def _item_from_proto(message: pb.EncodedItem) -> StoredItem:
    content = content_from_proto(message.content)
    tokens = tokens_from_proto(message.tokens)
    if tokens.modality is not content.modality:
        raise TokensInvalid(
            why=f"they are of {tokens.modality.value}, the content is {content.modality.value}"
        )
    return StoredItem(
        check_item_id(message.item_id),
        content,
        Encoding(embedding_from_proto(message.embedding), tokens),
    )


def _check_batch_size(name: str, count: int, high: int) -> None:
    if not 1 <= count <= high:
        raise BatchSizeOutOfRange(name=name, got=count, low=1, high=high)


def _check_different(item_ids: Iterable[str]) -> None:
    seen: set[str] = set()
    for item_id in item_ids:
        if item_id in seen:
            raise ItemIdDuplicate(item_id=item_id)
        seen.add(item_id)


def _check_fingerprint(fingerprint: str) -> str:
    # An index remembers the first it is given, so an empty one would stay with it.
    if not 1 <= len(fingerprint) <= MAX_FINGERPRINT_LENGTH:
        raise RequestMalformed(
            why=f"model_fingerprint has {len(fingerprint)} characters, "
            f"not 1 to {MAX_FINGERPRINT_LENGTH}"
        )
    return fingerprint
