"""Defines the enums of answers; their members are strings that equal the contract's names.

    result.rerank.stop == RerankStopReason.TIME == "TIME"

A value of a newer server is a member too, of a name that this version does not list.
"""

import enum

from typing_extensions import Self


class NamedAnswer(str, enum.Enum):
    """A string with a name: as enum.StrEnum, which Python 3.10 does not have."""

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, form: str) -> str:
        return str.__format__(self, form)

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member


class DegradationKind(NamedAnswer):
    """The ways in which an answer can be degraded."""

    RERANK_SKIPPED = "RERANK_SKIPPED"
    """No candidate was reranked; `rerank.stop` says why."""
    RERANK_PARTIAL = "RERANK_PARTIAL"
    """Fewer than rerank_k candidates were reranked."""
    SHARDS_MISSING = "SHARDS_MISSING"
    """At least one shard did not answer; `coverage` lists them."""
    TOKENS_MISSING = "TOKENS_MISSING"
    """Some candidates have no tokens that the cross-encoder can read."""
    EMBEDDING_CACHED = "EMBEDDING_CACHED"
    """The encoder's model is unavailable; the query's encoding came from a cache."""
    SHARD_REBUILDING = "SHARD_REBUILDING"
    """At least one shard scanned all items, because its index is being built."""
    NEIGHBOURS_SKIPPED = "NEIGHBOURS_SKIPPED"
    """Nothing was ordered by neighbours; `neighbours.stop` says why."""
    NEIGHBOURS_PARTIAL = "NEIGHBOURS_PARTIAL"
    """The neighbours lack a shard's items."""
    KEYWORDS_SKIPPED = "KEYWORDS_SKIPPED"
    """A hybrid search found nothing by words, since no shard could; `retrievals` say why."""
    KEYWORDS_PARTIAL = "KEYWORDS_PARTIAL"
    """At least one shard of a hybrid search could not find by words."""


class RerankStopReason(NamedAnswer):
    """Why a rerank stopped."""

    UNSPECIFIED = "UNSPECIFIED"
    """Never sent."""
    COMPLETE = "COMPLETE"
    """All rerank_k candidates were scored."""
    DISABLED = "DISABLED"
    """The search disabled it."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """Query and candidates have the same modality, or the query has no tokens."""
    TIME = "TIME"
    """The time budget was used up."""
    ADAPTIVE = "ADAPTIVE"
    """adaptive_depth: the first item was unlikely to change."""
    UNAVAILABLE = "UNAVAILABLE"
    """The cross-encoder failed, or its circuit breaker is open."""
    OUTPUT_INVALID = "OUTPUT_INVALID"
    """The cross-encoder returned invalid output."""
    OVERLOADED = "OVERLOADED"
    """The cross-encoder is overloaded."""

    @property
    def is_short(self) -> bool:
        """Whether fewer candidates were scored than requested."""
        return self in ("TIME", "UNAVAILABLE", "OUTPUT_INVALID", "OVERLOADED")


class NeighbourStopReason(NamedAnswer):
    """Why reordering by neighbours stopped."""

    UNSPECIFIED = "UNSPECIFIED"
    """Never sent."""
    COMPLETE = "COMPLETE"
    """The first items were scored."""
    NOT_SERVED = "NOT_SERVED"
    """No neighbour model is served."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """The items have the query's modality, or the query has several embeddings, or nothing was
    found."""
    MODEL_MISMATCH = "MODEL_MISMATCH"
    """The neighbour model was trained over another model's embeddings."""
    TOO_FEW_ITEMS = "TOO_FEW_ITEMS"
    """The index has fewer texts or images than the model compares with."""
    TIME = "TIME"
    """The time budget was used up."""
    UNAVAILABLE = "UNAVAILABLE"
    """No shard answered, or the neighbour model failed, or its circuit breaker is open."""
    OUTPUT_INVALID = "OUTPUT_INVALID"
    """The neighbour model returned invalid output."""
    OVERLOADED = "OVERLOADED"
    """A shard or the neighbour model is overloaded."""
    RERANK_MISMATCH = "RERANK_MISMATCH"
    """The neighbour model learned over another rerank than the search had."""

    @property
    def is_short(self) -> bool:
        """Whether nothing was scored that could have been."""
        return self not in ("COMPLETE", "NOT_APPLICABLE")


class OrderedBy(NamedAnswer):
    """The stage that ordered an item."""

    UNSPECIFIED = ""
    """The search did not set neighbours_enabled."""
    RETRIEVE = "RETRIEVE"
    """Bi-encoder order."""
    RERANK = "RERANK"
    """The cross-encoder, or its fusion with the bi-encoder."""
    NEIGHBOURS = "NEIGHBOURS"
    """The neighbour model."""


class ErrorReason(NamedAnswer):
    """Why a call, an item or a shard failed: `reason` of each class of `tandem.errors`."""

    UNSPECIFIED = "UNSPECIFIED"
    REQUEST_MALFORMED = "REQUEST_MALFORMED"
    CONTENT_MISSING = "CONTENT_MISSING"
    TEXT_EMPTY = "TEXT_EMPTY"
    TEXT_TOO_LONG = "TEXT_TOO_LONG"
    IMAGE_UNREADABLE = "IMAGE_UNREADABLE"
    IMAGE_TOO_LARGE = "IMAGE_TOO_LARGE"
    K_OUT_OF_RANGE = "K_OUT_OF_RANGE"
    BATCH_SIZE_OUT_OF_RANGE = "BATCH_SIZE_OUT_OF_RANGE"
    INDEX_ID_INVALID = "INDEX_ID_INVALID"
    INDEX_NOT_FOUND = "INDEX_NOT_FOUND"
    ITEM_ID_INVALID = "ITEM_ID_INVALID"
    ITEM_ID_DUPLICATE = "ITEM_ID_DUPLICATE"
    EMBEDDING_INVALID = "EMBEDDING_INVALID"
    TOKENS_INVALID = "TOKENS_INVALID"
    MODEL_MISMATCH = "MODEL_MISMATCH"
    MODEL_UNAVAILABLE = "MODEL_UNAVAILABLE"
    MODEL_OUTPUT_INVALID = "MODEL_OUTPUT_INVALID"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    OVERLOADED = "OVERLOADED"
    STORE_FULL = "STORE_FULL"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    ITEM_CORRUPT = "ITEM_CORRUPT"
    INTERNAL = "INTERNAL"
    FILTER_INVALID = "FILTER_INVALID"
    ATTRIBUTE_INVALID = "ATTRIBUTE_INVALID"
    REQUEST_ID_INVALID = "REQUEST_ID_INVALID"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    SEQUENCE_NOT_REACHED = "SEQUENCE_NOT_REACHED"
    CONSISTENCY_TOKEN_INVALID = "CONSISTENCY_TOKEN_INVALID"
    SHARDS_MISSING = "SHARDS_MISSING"
    SHARD_MAP_MISMATCH = "SHARD_MAP_MISMATCH"
    INDEX_TYPE_INVALID = "INDEX_TYPE_INVALID"
    QUERY_INVALID = "QUERY_INVALID"
    ITEM_NOT_FOUND = "ITEM_NOT_FOUND"
    RANKING_INVALID = "RANKING_INVALID"
    CURSOR_INVALID = "CURSOR_INVALID"
    RERANK_UNAVAILABLE = "RERANK_UNAVAILABLE"
    TRUNCATION_POLICY_INVALID = "TRUNCATION_POLICY_INVALID"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    ANSWER_TOO_LARGE = "ANSWER_TOO_LARGE"
    SERVER_UNKNOWN = "SERVER_UNKNOWN"
    CROSS_ENCODER_MISSING = "CROSS_ENCODER_MISSING"
    REGIONS_INVALID = "REGIONS_INVALID"
    IMAGE_INPUT_UNSUPPORTED = "IMAGE_INPUT_UNSUPPORTED"
    QUERY_CONTENT_MISSING = "QUERY_CONTENT_MISSING"
    NEIGHBOURS_UNAVAILABLE = "NEIGHBOURS_UNAVAILABLE"
    NEIGHBOUR_MODEL_MISSING = "NEIGHBOUR_MODEL_MISSING"
    UNCALIBRATED = "UNCALIBRATED"
    INDEX_READ_ONLY = "INDEX_READ_ONLY"
    NOTE_CHANGED = "NOTE_CHANGED"
    WRITER_REFUSED = "WRITER_REFUSED"
    GENERATION_REFUSED = "GENERATION_REFUSED"
