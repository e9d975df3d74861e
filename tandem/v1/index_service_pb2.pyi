import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from tandem.v1 import attribute_pb2 as _attribute_pb2
from tandem.v1 import content_pb2 as _content_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeywordState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEYWORD_STATE_UNSPECIFIED: _ClassVar[KeywordState]
    KEYWORD_STATE_SEARCHED: _ClassVar[KeywordState]
    KEYWORD_STATE_DISABLED: _ClassVar[KeywordState]
    KEYWORD_STATE_BEING_BUILT: _ClassVar[KeywordState]

class SearchFallback(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_FALLBACK_UNSPECIFIED: _ClassVar[SearchFallback]
    SEARCH_FALLBACK_BEING_BUILT: _ClassVar[SearchFallback]
    SEARCH_FALLBACK_NOT_BUILT: _ClassVar[SearchFallback]
    SEARCH_FALLBACK_DEVICE: _ClassVar[SearchFallback]
    SEARCH_FALLBACK_TOO_FEW_FOUND: _ClassVar[SearchFallback]

class SearchStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_STRATEGY_UNSPECIFIED: _ClassVar[SearchStrategy]
    SEARCH_STRATEGY_UNFILTERED: _ClassVar[SearchStrategy]
    SEARCH_STRATEGY_PRE_FILTER: _ClassVar[SearchStrategy]
    SEARCH_STRATEGY_POST_FILTER: _ClassVar[SearchStrategy]
    SEARCH_STRATEGY_EXACT_SCAN: _ClassVar[SearchStrategy]
KEYWORD_STATE_UNSPECIFIED: KeywordState
KEYWORD_STATE_SEARCHED: KeywordState
KEYWORD_STATE_DISABLED: KeywordState
KEYWORD_STATE_BEING_BUILT: KeywordState
SEARCH_FALLBACK_UNSPECIFIED: SearchFallback
SEARCH_FALLBACK_BEING_BUILT: SearchFallback
SEARCH_FALLBACK_NOT_BUILT: SearchFallback
SEARCH_FALLBACK_DEVICE: SearchFallback
SEARCH_FALLBACK_TOO_FEW_FOUND: SearchFallback
SEARCH_STRATEGY_UNSPECIFIED: SearchStrategy
SEARCH_STRATEGY_UNFILTERED: SearchStrategy
SEARCH_STRATEGY_PRE_FILTER: SearchStrategy
SEARCH_STRATEGY_POST_FILTER: SearchStrategy
SEARCH_STRATEGY_EXACT_SCAN: SearchStrategy

class SearchEmbeddingsRequest(_message.Message):
    __slots__ = ("index_id", "queries", "model_fingerprint", "modality", "retrieve_k", "filter", "minimum_sequence", "shard_map_version", "query_modality", "embeddings_included", "keywords")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    RETRIEVE_K_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_MODALITY_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    KEYWORDS_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    queries: _containers.RepeatedCompositeFieldContainer[_content_pb2.Embedding]
    model_fingerprint: str
    modality: _content_pb2.Modality
    retrieve_k: int
    filter: _attribute_pb2.Filter
    minimum_sequence: int
    shard_map_version: int
    query_modality: _content_pb2.Modality
    embeddings_included: bool
    keywords: str
    def __init__(self, index_id: _Optional[str] = ..., queries: _Optional[_Iterable[_Union[_content_pb2.Embedding, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., retrieve_k: _Optional[int] = ..., filter: _Optional[_Union[_attribute_pb2.Filter, _Mapping]] = ..., minimum_sequence: _Optional[int] = ..., shard_map_version: _Optional[int] = ..., query_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., embeddings_included: _Optional[bool] = ..., keywords: _Optional[str] = ...) -> None: ...

class SearchEmbeddingsResponse(_message.Message):
    __slots__ = ("hit_lists", "search_duration", "applied_sequence", "item_count", "path", "keyword_hit_list")
    HIT_LISTS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_DURATION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_HIT_LIST_FIELD_NUMBER: _ClassVar[int]
    hit_lists: _containers.RepeatedCompositeFieldContainer[HitList]
    search_duration: _duration_pb2.Duration
    applied_sequence: int
    item_count: int
    path: SearchPath
    keyword_hit_list: KeywordHitList
    def __init__(self, hit_lists: _Optional[_Iterable[_Union[HitList, _Mapping]]] = ..., search_duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., applied_sequence: _Optional[int] = ..., item_count: _Optional[int] = ..., path: _Optional[_Union[SearchPath, _Mapping]] = ..., keyword_hit_list: _Optional[_Union[KeywordHitList, _Mapping]] = ...) -> None: ...

class KeywordHitList(_message.Message):
    __slots__ = ("state", "hits")
    STATE_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    state: KeywordState
    hits: _containers.RepeatedCompositeFieldContainer[KeywordHit]
    def __init__(self, state: _Optional[_Union[KeywordState, str]] = ..., hits: _Optional[_Iterable[_Union[KeywordHit, _Mapping]]] = ...) -> None: ...

class KeywordHit(_message.Message):
    __slots__ = ("item_id", "score", "similarities", "embedding")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIMILARITIES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    score: float
    similarities: _containers.RepeatedScalarFieldContainer[float]
    embedding: _content_pb2.Embedding
    def __init__(self, item_id: _Optional[str] = ..., score: _Optional[float] = ..., similarities: _Optional[_Iterable[float]] = ..., embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ...) -> None: ...

class SearchPath(_message.Message):
    __slots__ = ("strategy", "index_type", "device", "fallback_reason", "matching_count", "fallback")
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    INDEX_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    MATCHING_COUNT_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    strategy: SearchStrategy
    index_type: str
    device: str
    fallback_reason: str
    matching_count: int
    fallback: SearchFallback
    def __init__(self, strategy: _Optional[_Union[SearchStrategy, str]] = ..., index_type: _Optional[str] = ..., device: _Optional[str] = ..., fallback_reason: _Optional[str] = ..., matching_count: _Optional[int] = ..., fallback: _Optional[_Union[SearchFallback, str]] = ...) -> None: ...

class HitList(_message.Message):
    __slots__ = ("hits",)
    HITS_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[Hit]
    def __init__(self, hits: _Optional[_Iterable[_Union[Hit, _Mapping]]] = ...) -> None: ...

class Hit(_message.Message):
    __slots__ = ("item_id", "similarity", "embedding")
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    similarity: float
    embedding: _content_pb2.Embedding
    def __init__(self, item_id: _Optional[str] = ..., similarity: _Optional[float] = ..., embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ...) -> None: ...

class FindNeighboursRequest(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "query", "candidates", "pool_k", "pillar_k", "neighbour_k", "shard_map_version")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    POOL_K_FIELD_NUMBER: _ClassVar[int]
    PILLAR_K_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOUR_K_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    query: _content_pb2.Embedding
    candidates: _containers.RepeatedCompositeFieldContainer[_content_pb2.Embedding]
    pool_k: int
    pillar_k: int
    neighbour_k: int
    shard_map_version: int
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., query: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., candidates: _Optional[_Iterable[_Union[_content_pb2.Embedding, _Mapping]]] = ..., pool_k: _Optional[int] = ..., pillar_k: _Optional[int] = ..., neighbour_k: _Optional[int] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class FindNeighboursResponse(_message.Message):
    __slots__ = ("texts", "images")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    texts: Neighbourhood
    images: Neighbourhood
    def __init__(self, texts: _Optional[_Union[Neighbourhood, _Mapping]] = ..., images: _Optional[_Union[Neighbourhood, _Mapping]] = ...) -> None: ...

class Neighbourhood(_message.Message):
    __slots__ = ("pillars", "lists")
    PILLARS_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    pillars: _containers.RepeatedCompositeFieldContainer[_content_pb2.Embedding]
    lists: _containers.RepeatedCompositeFieldContainer[NeighbourList]
    def __init__(self, pillars: _Optional[_Iterable[_Union[_content_pb2.Embedding, _Mapping]]] = ..., lists: _Optional[_Iterable[_Union[NeighbourList, _Mapping]]] = ...) -> None: ...

class NeighbourList(_message.Message):
    __slots__ = ("numbers", "similarities")
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    SIMILARITIES_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    similarities: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ..., similarities: _Optional[_Iterable[float]] = ...) -> None: ...

class UpsertItemsRequest(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "items", "request_id", "shard_map_version", "term")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    items: _containers.RepeatedCompositeFieldContainer[EncodedItem]
    request_id: str
    shard_map_version: int
    term: int
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., items: _Optional[_Iterable[_Union[EncodedItem, _Mapping]]] = ..., request_id: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class EncodedItem(_message.Message):
    __slots__ = ("item_id", "content", "embedding", "tokens", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _attribute_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_attribute_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    content: _content_pb2.Content
    embedding: _content_pb2.Embedding
    tokens: _content_pb2.ContentTokens
    attributes: _containers.MessageMap[str, _attribute_pb2.AttributeValue]
    def __init__(self, item_id: _Optional[str] = ..., content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., tokens: _Optional[_Union[_content_pb2.ContentTokens, _Mapping]] = ..., attributes: _Optional[_Mapping[str, _attribute_pb2.AttributeValue]] = ...) -> None: ...

class UpsertItemsResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class DeleteItemsRequest(_message.Message):
    __slots__ = ("index_id", "item_ids", "request_id", "shard_map_version", "term")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    request_id: str
    shard_map_version: int
    term: int
    def __init__(self, index_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., request_id: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class PatchItemsRequest(_message.Message):
    __slots__ = ("index_id", "patches", "request_id", "shard_map_version", "term")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    PATCHES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    patches: _containers.RepeatedCompositeFieldContainer[ItemPatch]
    request_id: str
    shard_map_version: int
    term: int
    def __init__(self, index_id: _Optional[str] = ..., patches: _Optional[_Iterable[_Union[ItemPatch, _Mapping]]] = ..., request_id: _Optional[str] = ..., shard_map_version: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class PatchItemsResponse(_message.Message):
    __slots__ = ("sequence", "failures")
    class FailuresEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    failures: _containers.ScalarMap[str, str]
    def __init__(self, sequence: _Optional[int] = ..., failures: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ItemPatch(_message.Message):
    __slots__ = ("item_id", "attributes", "removed_attributes", "attributes_replaced", "copied_from_item_id")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _attribute_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_attribute_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_REPLACED_FIELD_NUMBER: _ClassVar[int]
    COPIED_FROM_ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    attributes: _containers.MessageMap[str, _attribute_pb2.AttributeValue]
    removed_attributes: _containers.RepeatedScalarFieldContainer[str]
    attributes_replaced: bool
    copied_from_item_id: str
    def __init__(self, item_id: _Optional[str] = ..., attributes: _Optional[_Mapping[str, _attribute_pb2.AttributeValue]] = ..., removed_attributes: _Optional[_Iterable[str]] = ..., attributes_replaced: _Optional[bool] = ..., copied_from_item_id: _Optional[str] = ...) -> None: ...

class ItemSelection(_message.Message):
    __slots__ = ("id_prefix", "id_glob", "filter", "filter_text")
    ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    ID_GLOB_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FILTER_TEXT_FIELD_NUMBER: _ClassVar[int]
    id_prefix: str
    id_glob: str
    filter: _attribute_pb2.Filter
    filter_text: str
    def __init__(self, id_prefix: _Optional[str] = ..., id_glob: _Optional[str] = ..., filter: _Optional[_Union[_attribute_pb2.Filter, _Mapping]] = ..., filter_text: _Optional[str] = ...) -> None: ...

class ReadNotesRequest(_message.Message):
    __slots__ = ("prefix",)
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    def __init__(self, prefix: _Optional[str] = ...) -> None: ...

class ReadNotesResponse(_message.Message):
    __slots__ = ("notes",)
    NOTES_FIELD_NUMBER: _ClassVar[int]
    notes: _containers.RepeatedCompositeFieldContainer[Note]
    def __init__(self, notes: _Optional[_Iterable[_Union[Note, _Mapping]]] = ...) -> None: ...

class Note(_message.Message):
    __slots__ = ("key", "value", "revision")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    revision: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., revision: _Optional[int] = ...) -> None: ...

class PutNoteRequest(_message.Message):
    __slots__ = ("key", "value", "replaced_revision")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    REPLACED_REVISION_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    replaced_revision: int
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ..., replaced_revision: _Optional[int] = ...) -> None: ...

class PutNoteResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class SetWriterRequest(_message.Message):
    __slots__ = ("index_id", "term", "is_open", "progress", "shard_map_version")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    term: int
    is_open: bool
    progress: str
    shard_map_version: int
    def __init__(self, index_id: _Optional[str] = ..., term: _Optional[int] = ..., is_open: _Optional[bool] = ..., progress: _Optional[str] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class SetWriterResponse(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class DeleteItemsResponse(_message.Message):
    __slots__ = ("deleted_count", "sequence")
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    deleted_count: int
    sequence: int
    def __init__(self, deleted_count: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class DeleteIndexRequest(_message.Message):
    __slots__ = ("index_id", "shard_map_version")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    shard_map_version: int
    def __init__(self, index_id: _Optional[str] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class DeleteIndexResponse(_message.Message):
    __slots__ = ("deleted_count", "sequence", "is_complete")
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    deleted_count: int
    sequence: int
    is_complete: bool
    def __init__(self, deleted_count: _Optional[int] = ..., sequence: _Optional[int] = ..., is_complete: _Optional[bool] = ...) -> None: ...

class GetItemsRequest(_message.Message):
    __slots__ = ("index_id", "item_ids", "encodings_included", "max_bytes", "content_excluded")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    encodings_included: bool
    max_bytes: int
    content_excluded: bool
    def __init__(self, index_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., encodings_included: _Optional[bool] = ..., max_bytes: _Optional[int] = ..., content_excluded: _Optional[bool] = ...) -> None: ...

class ListItemIdsRequest(_message.Message):
    __slots__ = ("index_id", "after", "max_count", "selection")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    after: str
    max_count: int
    selection: ItemSelection
    def __init__(self, index_id: _Optional[str] = ..., after: _Optional[str] = ..., max_count: _Optional[int] = ..., selection: _Optional[_Union[ItemSelection, _Mapping]] = ...) -> None: ...

class ListItemIdsResponse(_message.Message):
    __slots__ = ("item_ids",)
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetItemsResponse(_message.Message):
    __slots__ = ("items", "encoded_items", "model_fingerprint", "read_count")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    ENCODED_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    READ_COUNT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    encoded_items: _containers.RepeatedCompositeFieldContainer[EncodedItem]
    model_fingerprint: str
    read_count: int
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ..., encoded_items: _Optional[_Iterable[_Union[EncodedItem, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., read_count: _Optional[int] = ...) -> None: ...

class Item(_message.Message):
    __slots__ = ("item_id", "content", "attributes")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _attribute_pb2.AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_attribute_pb2.AttributeValue, _Mapping]] = ...) -> None: ...
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    item_id: str
    content: _content_pb2.Content
    attributes: _containers.MessageMap[str, _attribute_pb2.AttributeValue]
    def __init__(self, item_id: _Optional[str] = ..., content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., attributes: _Optional[_Mapping[str, _attribute_pb2.AttributeValue]] = ...) -> None: ...

class DescribeShardIndexRequest(_message.Message):
    __slots__ = ("index_id", "shard_map_version")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    SHARD_MAP_VERSION_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    shard_map_version: int
    def __init__(self, index_id: _Optional[str] = ..., shard_map_version: _Optional[int] = ...) -> None: ...

class DescribeShardIndexResponse(_message.Message):
    __slots__ = ("model_fingerprint", "embedding_dimension", "parts", "keyword_state")
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    KEYWORD_STATE_FIELD_NUMBER: _ClassVar[int]
    model_fingerprint: str
    embedding_dimension: int
    parts: _containers.RepeatedCompositeFieldContainer[IndexPart]
    keyword_state: KeywordState
    def __init__(self, model_fingerprint: _Optional[str] = ..., embedding_dimension: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[IndexPart, _Mapping]]] = ..., keyword_state: _Optional[_Union[KeywordState, str]] = ...) -> None: ...

class IndexPart(_message.Message):
    __slots__ = ("modality", "item_count", "dead_row_count", "tail_row_count", "index_type", "parameters", "device", "fallback", "fallback_reason", "activity", "index_bytes", "recall_target", "built_recall", "list_imbalance", "live_recalls")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    ITEM_COUNT_FIELD_NUMBER: _ClassVar[int]
    DEAD_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    TAIL_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEX_TYPE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_REASON_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECALL_TARGET_FIELD_NUMBER: _ClassVar[int]
    BUILT_RECALL_FIELD_NUMBER: _ClassVar[int]
    LIST_IMBALANCE_FIELD_NUMBER: _ClassVar[int]
    LIVE_RECALLS_FIELD_NUMBER: _ClassVar[int]
    modality: _content_pb2.Modality
    item_count: int
    dead_row_count: int
    tail_row_count: int
    index_type: str
    parameters: _containers.ScalarMap[str, float]
    device: str
    fallback: SearchFallback
    fallback_reason: str
    activity: str
    index_bytes: int
    recall_target: float
    built_recall: float
    list_imbalance: float
    live_recalls: _containers.RepeatedCompositeFieldContainer[DirectionRecall]
    def __init__(self, modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., item_count: _Optional[int] = ..., dead_row_count: _Optional[int] = ..., tail_row_count: _Optional[int] = ..., index_type: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., device: _Optional[str] = ..., fallback: _Optional[_Union[SearchFallback, str]] = ..., fallback_reason: _Optional[str] = ..., activity: _Optional[str] = ..., index_bytes: _Optional[int] = ..., recall_target: _Optional[float] = ..., built_recall: _Optional[float] = ..., list_imbalance: _Optional[float] = ..., live_recalls: _Optional[_Iterable[_Union[DirectionRecall, _Mapping]]] = ...) -> None: ...

class DirectionRecall(_message.Message):
    __slots__ = ("query_modality", "target_modality", "recall", "search_count")
    QUERY_MODALITY_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODALITY_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    SEARCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    query_modality: _content_pb2.Modality
    target_modality: _content_pb2.Modality
    recall: float
    search_count: int
    def __init__(self, query_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., target_modality: _Optional[_Union[_content_pb2.Modality, str]] = ..., recall: _Optional[float] = ..., search_count: _Optional[int] = ...) -> None: ...

class ListShardIndexesRequest(_message.Message):
    __slots__ = ("after", "max_count", "index_ids")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    INDEX_IDS_FIELD_NUMBER: _ClassVar[int]
    after: str
    max_count: int
    index_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, after: _Optional[str] = ..., max_count: _Optional[int] = ..., index_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListShardIndexesResponse(_message.Message):
    __slots__ = ("indexes",)
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    indexes: _containers.RepeatedCompositeFieldContainer[IndexSummary]
    def __init__(self, indexes: _Optional[_Iterable[_Union[IndexSummary, _Mapping]]] = ...) -> None: ...

class IndexSummary(_message.Message):
    __slots__ = ("index_id", "model_fingerprint", "text_count", "image_count")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    TEXT_COUNT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_COUNT_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    model_fingerprint: str
    text_count: int
    image_count: int
    def __init__(self, index_id: _Optional[str] = ..., model_fingerprint: _Optional[str] = ..., text_count: _Optional[int] = ..., image_count: _Optional[int] = ...) -> None: ...
