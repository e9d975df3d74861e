"""Makes requests to IndexService from the small items of the item store's tests."""

from collections.abc import Sequence

from tandem.contract.filtering.attribute_wire import attributes_to_proto
from tandem.contract.search.answer_wire import content_to_proto
from tandem.stages.items import ItemRecord
from tandem.v1 import content_pb2
from tandem.v1 import index_service_pb2 as pb
from tandem.wire import embedding_to_proto, tokens_to_proto
from tests.support.item_store.made_items import FINGERPRINT, unit_vector

INDEX_ID = "scenes"


def encoded_item(item: ItemRecord) -> pb.EncodedItem:
    """Returns the item as a message."""
    return pb.EncodedItem(
        item_id=item.item_id,
        content=content_to_proto(item.content),
        embedding=embedding_to_proto(item.encoding.embedding),
        tokens=tokens_to_proto(item.encoding.tokens),
        attributes=attributes_to_proto(item.attributes),
    )


def upsert_request(items: Sequence[ItemRecord], index_id: str = INDEX_ID) -> pb.UpsertItemsRequest:
    """Returns the request that stores the items."""
    return pb.UpsertItemsRequest(
        index_id=index_id, model_fingerprint=FINGERPRINT, items=map(encoded_item, items)
    )


def search_request(
    seeds: Sequence[int],
    k: int = 10,
    modality: content_pb2.Modality = content_pb2.MODALITY_TEXT,
    index_id: str = INDEX_ID,
) -> pb.SearchEmbeddingsRequest:
    """Returns a search for the items nearest to those of the seeds."""
    return pb.SearchEmbeddingsRequest(
        index_id=index_id,
        model_fingerprint=FINGERPRINT,
        modality=modality,
        retrieve_k=k,
        queries=[embedding_to_proto(unit_vector(seed)) for seed in seeds],
    )
