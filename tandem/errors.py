"""What can go wrong, by name: one class for each value of `tandem.v1.ErrorReason`.

    TandemError
    ├── RequestMalformed        the bytes are no message of the contract
    ├── ContentMissing          ┐
    ├── TextEmpty               │
    ├── TextTooLong             │ a content cannot be taken
    ├── ImageUnreadable         │
    ├── ImageTooLarge           ┘
    ├── KOutOfRange             ┐
    ├── BatchSizeOutOfRange     │
    ├── IndexIdInvalid          │
    ├── ItemIdInvalid           │ a request asks for what is not offered
    ├── ItemIdDuplicate         │
    ├── EmbeddingInvalid        │
    ├── TokensInvalid           │
    ├── FilterInvalid           │
    ├── AttributeInvalid        │
    ├── RequestIdInvalid        │
    ├── RequestIdReused         │
    ├── ConsistencyTokenInvalid │
    ├── IndexTypeInvalid        │
    ├── QueryInvalid            │
    ├── RankingInvalid          │
    ├── CursorInvalid           │
    ├── TruncationPolicyInvalid ┘
    ├── IndexNotFound           ┐
    ├── ItemNotFound            │
    ├── ModelMismatch           │ it does not fit what is stored
    ├── SequenceNotReached      │
    ├── ShardMapMismatch        ┘
    ├── Unauthenticated         ┐ the caller may not
    ├── PermissionDenied        ┘
    ├── ModelUnavailable        ┐
    ├── ServiceUnavailable      │
    ├── ShardsMissing           │
    ├── RerankUnavailable       │ not now: the same call may succeed later
    ├── Overloaded              │
    ├── QuotaExceeded           │
    ├── DeadlineExceeded        ┘
    ├── MessageTooLarge         ┐ more than goes at once
    ├── AnswerTooLarge          ┘
    ├── ServerUnknown           what answers is not Tandem
    ├── StoreFull               ┐
    ├── ItemCorrupt             │ an operator is needed
    ├── ModelOutputInvalid      │
    └── InternalFault           ┘

Pure Python: raised where the fault is known, told to the caller by `tandem.chassis.status`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Self

_RETRY_DELAY_KEY = "retry_delay_seconds"


class TandemError(Exception):
    """A refusal or fault with a name that callers can branch on.

    `message` says what is wrong and what to do, and may be shown to whoever called; `metadata`
    carries the values in it that a program may want.
    """

    reason: ClassVar[str]

    def __init__(self, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})

    def kept(self) -> Self:
        """Returns the same, to be put by: without where it was raised, and all that is held there.

        An error beside many others, or one that outlives its call, would keep the request too.
        """
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by calling the class with `args`; subclasses take other arguments.
        return (error_from_reason, (self.reason, self.message, self.metadata))


class RequestMalformed(TandemError):
    """The message does not parse."""

    reason = "REQUEST_MALFORMED"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the request does not parse: {why}; send what tandem.v1 says")


class ContentMissing(TandemError):
    """A content has neither text nor image."""

    reason = "CONTENT_MISSING"

    def __init__(self) -> None:
        super().__init__("the content has neither text nor image; send one of them")


class TextEmpty(TandemError):
    """A text has no words in it."""

    reason = "TEXT_EMPTY"

    def __init__(self) -> None:
        super().__init__("the text has no words in it; send some")


class TextTooLong(TandemError):
    """A text is over the byte or token limit."""

    reason = "TEXT_TOO_LONG"

    def __init__(self, *, got: int, limit: int, unit: str) -> None:
        super().__init__(
            f"the text has {got:,} {unit}, the limit is {limit:,}; shorten it",
            {"got": str(got), "limit": str(limit), "unit": unit},
        )


class ImageUnreadable(TandemError):
    """An image is cut short, damaged, or of a format that is not taken."""

    reason = "IMAGE_UNREADABLE"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the image cannot be read: {why}; send a whole JPEG, PNG or WebP file")


class ImageTooLarge(TandemError):
    """An image is over the byte or pixel limit."""

    reason = "IMAGE_TOO_LARGE"

    def __init__(self, *, got: int, limit: int, unit: str) -> None:
        super().__init__(
            f"the image has {got:,} {unit}, the limit is {limit:,}; scale it down",
            {"got": str(got), "limit": str(limit), "unit": unit},
        )


class KOutOfRange(TandemError):
    """`retrieve_k`, `rerank_k` or `return_n` is out of its range."""

    reason = "K_OUT_OF_RANGE"

    def __init__(self, *, name: str, got: int, low: int, high: int) -> None:
        super().__init__(
            f"{name} is {got:,}; send {low:,} to {high:,}",
            {"name": name, "got": str(got), "low": str(low), "high": str(high)},
        )


class BatchSizeOutOfRange(TandemError):
    """A batch has more or fewer elements than it may."""

    reason = "BATCH_SIZE_OUT_OF_RANGE"

    def __init__(self, *, name: str, got: int, low: int, high: int, is_more: bool = False) -> None:
        """`is_more`: there are more than `got`, which nobody counted."""
        super().__init__(
            f"{name} has {'over ' if is_more else ''}{got:,} elements; send {low:,} to {high:,}",
            {"name": name, "got": str(got), "low": str(low), "high": str(high)},
        )


class IndexIdInvalid(TandemError):
    """An index id is not of the form that index ids have."""

    reason = "INDEX_ID_INVALID"

    def __init__(self, *, index_id: str) -> None:
        super().__init__(
            f"index_id {_shown(index_id)} is not valid; use 1 to 63 characters of a-z, 0-9, '_' "
            "and '-', starting with a letter or digit"
        )


class IndexNotFound(TandemError):
    """Nothing was ever ingested under that index id."""

    reason = "INDEX_NOT_FOUND"

    def __init__(self, *, index_id: str) -> None:
        super().__init__(
            f"there is no index {_shown(index_id)}; ingest into it, or check the id",
            {"index_id": index_id},
        )


class ItemIdInvalid(TandemError):
    """An item id is empty, too long, or cannot be stored."""

    reason = "ITEM_ID_INVALID"

    def __init__(self, *, item_id: str, why: str) -> None:
        super().__init__(
            f"item_id {_shown(item_id)} is not valid: {why}; use 1 to 256 bytes of UTF-8 "
            "without NUL"
        )


class ItemIdDuplicate(TandemError):
    """One item id stands twice in one batch."""

    reason = "ITEM_ID_DUPLICATE"

    def __init__(self, *, item_id: str) -> None:
        super().__init__(
            f"item_id {_shown(item_id)} stands more than once in the batch; send each item once",
            {"item_id": item_id},
        )


class EmbeddingInvalid(TandemError):
    """An embedding has the wrong length, is not finite, or is not of unit length."""

    reason = "EMBEDDING_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the embedding is not valid: {why}; send it as encoder_svc gave it")


class TokensInvalid(TandemError):
    """Content tokens are missing or of the wrong shape."""

    reason = "TOKENS_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the tokens are not valid: {why}; send them as encoder_svc gave them")


class ModelMismatch(TandemError):
    """A request was made by another model than the index."""

    reason = "MODEL_MISMATCH"

    def __init__(self, *, request: str, index: str) -> None:
        super().__init__(
            f"the request was made by model {_shown(request)}, the index by model {_shown(index)}; "
            "ingest into another index, or serve the index's model",
            {"request_fingerprint": request, "index_fingerprint": index},
        )


class ModelUnavailable(TandemError):
    """Triton or one of its models does not answer."""

    reason = "MODEL_UNAVAILABLE"

    def __init__(self, *, model: str, why: str) -> None:
        super().__init__(f"model {model} does not answer: {why}; retry later", {"model": model})


class ModelOutputInvalid(TandemError):
    """A model answered with a wrong shape, NaN, or nothing."""

    reason = "MODEL_OUTPUT_INVALID"

    def __init__(self, *, model: str, why: str) -> None:
        super().__init__(
            f"model {model} gave an answer that cannot be used: {why}; tell the operator",
            {"model": model},
        )


class ServiceUnavailable(TandemError):
    """A service on the way does not answer."""

    reason = "SERVICE_UNAVAILABLE"

    def __init__(self, *, service: str, why: str) -> None:
        super().__init__(f"{service} does not answer: {why}; retry later", {"service": service})


class Overloaded(TandemError):
    """More work than is admitted at once."""

    reason = "OVERLOADED"

    def __init__(self, *, what: str, retry_delay_seconds: float = 0.1) -> None:
        super().__init__(
            f"{what}; retry with backoff", {_RETRY_DELAY_KEY: f"{retry_delay_seconds:.3f}"}
        )

    @property
    def retry_delay_seconds(self) -> float:
        """When there may be room again, by the service that refused."""
        return _retry_delay_seconds(self.metadata)


class StoreFull(TandemError):
    """The shard's disk or map is full; reads go on."""

    reason = "STORE_FULL"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the item store is full: {why}; delete items or give it more room")


class DeadlineExceeded(TandemError):
    """The caller's deadline passed."""

    reason = "DEADLINE_EXCEEDED"

    def __init__(self, *, what: str) -> None:
        super().__init__(f"the deadline passed during {what}; allow more time or ask for less")


class ItemCorrupt(TandemError):
    """A stored value fails its checksum."""

    reason = "ITEM_CORRUPT"

    def __init__(self, *, item_id: str, why: str) -> None:
        super().__init__(
            f"stored item {_shown(item_id)} is damaged: {why}; restore it or ingest it again",
            {"item_id": item_id},
        )


class FilterInvalid(TandemError):
    """A filter has no condition, too many, or one with a bad name or value."""

    reason = "FILTER_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the filter is not valid: {why}")


class AttributeInvalid(TandemError):
    """An attribute has a bad name or value, or there are too many."""

    reason = "ATTRIBUTE_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the attributes are not valid: {why}")


class RequestIdInvalid(TandemError):
    """A request id is too long."""

    reason = "REQUEST_ID_INVALID"

    def __init__(self, *, got: int, limit: int) -> None:
        super().__init__(
            f"the request_id has {got:,} bytes, the limit is {limit:,}; shorten it",
            {"got": str(got), "limit": str(limit)},
        )


class RequestIdReused(TandemError):
    """A request id was used for another write."""

    reason = "REQUEST_ID_REUSED"

    def __init__(self, *, request_id: str) -> None:
        super().__init__(
            f"request_id {_shown(request_id)} was used for another write; make up a new one for "
            "each write, and repeat it only with the same items",
            {"request_id": request_id},
        )


class SequenceNotReached(TandemError):
    """The shard's change log did not reach a sequence in time."""

    reason = "SEQUENCE_NOT_REACHED"

    def __init__(self, *, minimum: int, applied: int) -> None:
        super().__init__(
            f"the shard's change log stands at {applied:,}, not yet at {minimum:,}; allow more "
            "time, or ask without a minimum",
            {"minimum_sequence": str(minimum), "applied_sequence": str(applied)},
        )


class ConsistencyTokenInvalid(TandemError):
    """A consistency token is not one of this deployment's."""

    reason = "CONSISTENCY_TOKEN_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"a consistency token is not valid: {why}; send what IngestItems or RemoveItems gave"
        )


class ShardsMissing(TandemError):
    """Shards did not answer, and more of the index is asked for than the others have."""

    reason = "SHARDS_MISSING"

    def __init__(self, *, missing: Mapping[int, str], shard_count: int) -> None:
        """`missing` says, by shard number, why it did not answer."""
        answered = shard_count - len(missing)
        reasons = ", ".join(f"shard {number}: {why}" for number, why in sorted(missing.items()))
        super().__init__(
            f"{answered} of {shard_count} shards answered ({reasons}); retry later, or allow an "
            "answer without them",
            {
                "missing_shards": ",".join(map(str, sorted(missing))),
                "answered_shard_count": str(answered),
                "shard_count": str(shard_count),
            },
        )


class ShardMapMismatch(TandemError):
    """Caller and shard go by different shard maps."""

    reason = "SHARD_MAP_MISMATCH"

    def __init__(self, *, request_version: int, shard_version: int) -> None:
        super().__init__(
            f"the caller goes by shard map {request_version}, the shard by {shard_version}; "
            "restart what has the older one",
            {"request_version": str(request_version), "shard_version": str(shard_version)},
        )


class IndexTypeInvalid(TandemError):
    """FAISS does not take this index type or search parameter."""

    reason = "INDEX_TYPE_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the index cannot be made or tuned like this: {why}")


class QueryInvalid(TandemError):
    """A search has no query, several forms of one, or parts that cancel each other out."""

    reason = "QUERY_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the query is not valid: {why}")


class ItemNotFound(TandemError):
    """An item that a call names is not there."""

    reason = "ITEM_NOT_FOUND"

    def __init__(self, *, item_id: str) -> None:
        super().__init__(
            f"there is no item {_shown(item_id)}; ingest it, or check the id", {"item_id": item_id}
        )


class RankingInvalid(TandemError):
    """Fusion, diversity or min_probability are out of range, or do not go together."""

    reason = "RANKING_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the answer cannot be ranked like this: {why}")


class CursorInvalid(TandemError):
    """A cursor is not one of ours, or stands beside what may not be set with it."""

    reason = "CURSOR_INVALID"

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"the cursor is not valid: {why}; send what an answer gave, or search anew"
        )


class RerankUnavailable(TandemError):
    """A search that had to be reranked in full could not be."""

    reason = "RERANK_UNAVAILABLE"

    def __init__(self, *, stop: str, reranked_depth: int, rerank_k: int) -> None:
        """`stop` is the name of a `RerankStop`."""
        super().__init__(
            f"{reranked_depth} of {rerank_k} candidates were reranked ({stop}); retry later, or "
            "allow an answer in the bi-encoder's order",
            {"stop": stop, "reranked_depth": str(reranked_depth)},
        )


class TruncationPolicyInvalid(TandemError):
    """A call does not take this truncation policy."""

    reason = "TRUNCATION_POLICY_INVALID"

    def __init__(self, *, policy: str, why: str) -> None:
        super().__init__(f"truncation policy {policy} cannot be had here: {why}")


class Unauthenticated(TandemError):
    """A call does not say who makes it, in a way that is known here."""

    reason = "UNAUTHENTICATED"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the caller is not known: {why}; send 'authorization: Bearer TOKEN'")


class PermissionDenied(TandemError):
    """Who makes the call is known, and may not."""

    reason = "PERMISSION_DENIED"

    def __init__(self, *, caller: str, what: str) -> None:
        super().__init__(f"{_shown(caller)} may not {what}; ask the operator for a token that may")


class QuotaExceeded(TandemError):
    """A token's calls, or pairs, of this second are used up."""

    reason = "QUOTA_EXCEEDED"

    def __init__(
        self, *, what: str, rate: float, retry_delay_seconds: float, most: float | None = None
    ) -> None:
        """`most`: what is asked for at once is over this, and never allowed."""
        then = (
            f"retry in {retry_delay_seconds:.3f} s"
            if most is None
            else f"ask for at most {math.floor(most):,} of them at once"
        )
        super().__init__(
            f"the token allows {rate:g} {what} a second; {then}",
            {_RETRY_DELAY_KEY: f"{retry_delay_seconds:.3f}"},
        )

    @property
    def retry_delay_seconds(self) -> float:
        """As Overloaded's."""
        return _retry_delay_seconds(self.metadata)


class MessageTooLarge(TandemError):
    """A message is over what is sent at once."""

    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"a message is too large to be sent at once: {why}; send fewer items, or smaller ones"
        )


class AnswerTooLarge(TandemError):
    """The contents asked for are more than one answer carries."""

    reason = "ANSWER_TOO_LARGE"

    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"the contents asked for come to over {limit:,} bytes, which is the limit of one "
            "answer; ask for fewer items (return_n) and go on by next_cursor, or leave out "
            "contents (content_included)",
            {"limit": str(limit)},
        )


class ServerUnknown(TandemError):
    """What answers at an address is not the service that was called."""

    reason = "SERVER_UNKNOWN"

    def __init__(self, *, target: str, why: str) -> None:
        super().__init__(
            f"what answers at {target} is not the service of Tandem that was called: {why}; check "
            "the address, its version, and what stands before it"
        )


class InternalFault(TandemError):
    """A fault of ours."""

    reason = "INTERNAL"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"a fault inside Tandem: {why}; tell the operator the request id")


ERROR_CLASSES: Mapping[str, type[TandemError]] = {
    error_class.reason: error_class for error_class in TandemError.__subclasses__()
}
"""Every error by its reason; a test holds it equal to `tandem.v1.ErrorReason`."""


def error_from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> TandemError:
    """Rebuilds an error that came over the wire, in the sender's own words.

    A reason that this version does not know becomes an `InternalFault` whose message names it.
    """
    error_class = ERROR_CLASSES.get(reason)
    if error_class is None:
        return InternalFault(why=f"unknown reason {_shown(reason)}: {message}")
    # The class's own constructor would compose the message anew out of values we do not have.
    error = error_class.__new__(error_class)
    TandemError.__init__(error, message, metadata)
    return error


def error_of_exhausted(target: str, details: str) -> TandemError:
    """Returns what RESOURCE_EXHAUSTED without a reason means: gRPC's own, told by words alone."""
    if "larger than max" in details:
        return MessageTooLarge(why=details)
    return Overloaded(what=f"{target} takes no more: {details}")


def _retry_delay_seconds(metadata: Mapping[str, str]) -> float:
    try:
        seconds = float(metadata[_RETRY_DELAY_KEY])
    except (KeyError, ValueError):  # of a sender that does not say
        return 0.1
    return seconds if 0 < seconds < 3600 else 0.1


def _shown(value: str) -> str:
    # ascii(): these come from callers, may hold lone surrogates, and go into logs and statuses.
    return ascii(value if len(value) <= 64 else value[:64] + "…")
