from tandem.v1 import content_pb2 as _content_pb2
from tandem.v1 import cost_pb2 as _cost_pb2
from tandem.v1 import error_reason_pb2 as _error_reason_pb2
from tandem.v1 import index_service_pb2 as _index_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchItemsRequest(_message.Message):
    __slots__ = ("index_id", "item_ids", "content_excluded", "embeddings_included")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    content_excluded: bool
    embeddings_included: bool
    def __init__(self, index_id: _Optional[str] = ..., item_ids: _Optional[_Iterable[str]] = ..., content_excluded: _Optional[bool] = ..., embeddings_included: _Optional[bool] = ...) -> None: ...

class FetchItemsResponse(_message.Message):
    __slots__ = ("items", "embeddings", "model_fingerprint")
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.Item]
    embeddings: _containers.RepeatedCompositeFieldContainer[StoredEmbedding]
    model_fingerprint: str
    def __init__(self, items: _Optional[_Iterable[_Union[_index_service_pb2.Item, _Mapping]]] = ..., embeddings: _Optional[_Iterable[_Union[StoredEmbedding, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ...) -> None: ...

class StoredEmbedding(_message.Message):
    __slots__ = ("embedding", "modality")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    modality: _content_pb2.Modality
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., modality: _Optional[_Union[_content_pb2.Modality, str]] = ...) -> None: ...

class ListItemsRequest(_message.Message):
    __slots__ = ("index_id", "page_size", "page_token", "selection", "attributes_included")
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_INCLUDED_FIELD_NUMBER: _ClassVar[int]
    index_id: str
    page_size: int
    page_token: str
    selection: _index_service_pb2.ItemSelection
    attributes_included: bool
    def __init__(self, index_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., selection: _Optional[_Union[_index_service_pb2.ItemSelection, _Mapping]] = ..., attributes_included: _Optional[bool] = ...) -> None: ...

class ListItemsResponse(_message.Message):
    __slots__ = ("item_ids", "next_page_token", "items")
    ITEM_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    item_ids: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    items: _containers.RepeatedCompositeFieldContainer[_index_service_pb2.Item]
    def __init__(self, item_ids: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., items: _Optional[_Iterable[_Union[_index_service_pb2.Item, _Mapping]]] = ...) -> None: ...

class EmbedContentsRequest(_message.Message):
    __slots__ = ("contents", "truncation_policy")
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    contents: _containers.RepeatedCompositeFieldContainer[_content_pb2.Content]
    truncation_policy: _content_pb2.TruncationPolicy
    def __init__(self, contents: _Optional[_Iterable[_Union[_content_pb2.Content, _Mapping]]] = ..., truncation_policy: _Optional[_Union[_content_pb2.TruncationPolicy, str]] = ...) -> None: ...

class EmbedContentsResponse(_message.Message):
    __slots__ = ("results", "model_fingerprint", "model_version", "cost")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_VERSION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[EmbedResult]
    model_fingerprint: str
    model_version: int
    cost: _cost_pb2.InferenceCost
    def __init__(self, results: _Optional[_Iterable[_Union[EmbedResult, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., model_version: _Optional[int] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ...) -> None: ...

class EmbedResult(_message.Message):
    __slots__ = ("embedding", "error", "text_use")
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_USE_FIELD_NUMBER: _ClassVar[int]
    embedding: _content_pb2.Embedding
    error: _error_reason_pb2.ItemError
    text_use: _content_pb2.TextUse
    def __init__(self, embedding: _Optional[_Union[_content_pb2.Embedding, _Mapping]] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ..., text_use: _Optional[_Union[_content_pb2.TextUse, _Mapping]] = ...) -> None: ...

class ScoreDocumentsRequest(_message.Message):
    __slots__ = ("query", "documents", "index_id", "truncation_policy")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    INDEX_ID_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    query: _content_pb2.Content
    documents: _containers.RepeatedCompositeFieldContainer[Document]
    index_id: str
    truncation_policy: _content_pb2.TruncationPolicy
    def __init__(self, query: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., documents: _Optional[_Iterable[_Union[Document, _Mapping]]] = ..., index_id: _Optional[str] = ..., truncation_policy: _Optional[_Union[_content_pb2.TruncationPolicy, str]] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("content", "item_id")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    ITEM_ID_FIELD_NUMBER: _ClassVar[int]
    content: _content_pb2.Content
    item_id: str
    def __init__(self, content: _Optional[_Union[_content_pb2.Content, _Mapping]] = ..., item_id: _Optional[str] = ...) -> None: ...

class ScoreDocumentsResponse(_message.Message):
    __slots__ = ("scores", "model_fingerprint", "reranker", "cost", "probability_withheld", "query_text_use", "scales_differ")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_WITHHELD_FIELD_NUMBER: _ClassVar[int]
    QUERY_TEXT_USE_FIELD_NUMBER: _ClassVar[int]
    SCALES_DIFFER_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[DocumentScore]
    model_fingerprint: str
    reranker: str
    cost: _cost_pb2.InferenceCost
    probability_withheld: _error_reason_pb2.ErrorReason
    query_text_use: _content_pb2.TextUse
    scales_differ: bool
    def __init__(self, scores: _Optional[_Iterable[_Union[DocumentScore, _Mapping]]] = ..., model_fingerprint: _Optional[str] = ..., reranker: _Optional[str] = ..., cost: _Optional[_Union[_cost_pb2.InferenceCost, _Mapping]] = ..., probability_withheld: _Optional[_Union[_error_reason_pb2.ErrorReason, str]] = ..., query_text_use: _Optional[_Union[_content_pb2.TextUse, _Mapping]] = ..., scales_differ: _Optional[bool] = ...) -> None: ...

class DocumentScore(_message.Message):
    __slots__ = ("match_logit", "match_probability", "similarity", "error", "text_use")
    MATCH_LOGIT_FIELD_NUMBER: _ClassVar[int]
    MATCH_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_USE_FIELD_NUMBER: _ClassVar[int]
    match_logit: float
    match_probability: float
    similarity: float
    error: _error_reason_pb2.ItemError
    text_use: _content_pb2.TextUse
    def __init__(self, match_logit: _Optional[float] = ..., match_probability: _Optional[float] = ..., similarity: _Optional[float] = ..., error: _Optional[_Union[_error_reason_pb2.ItemError, _Mapping]] = ..., text_use: _Optional[_Union[_content_pb2.TextUse, _Mapping]] = ...) -> None: ...
