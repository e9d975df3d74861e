"""Names everything that can go wrong: one class for each value of `tandem.v1.ErrorReason`.

Code raises these where it finds the fault; `tandem.chassis.calls.status` sends them to the
caller. Pure Python.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from typing_extensions import Self

RETRY_DELAY_KEY = "retry_delay_seconds"
"""In the metadata of an error: the delay that its sender asks for."""


class TandemError(Exception):
    """A refusal or fault with a name that callers can branch on.

    `message` says what is wrong and what to do, and the caller may see it; `metadata` carries its
    values for programs.
    """

    reason: ClassVar[str]
    """The value of `tandem.v1.ErrorReason`: the class's name in capitals, unless set."""
    status: ClassVar[str] = "INVALID_ARGUMENT"
    """The gRPC status code."""

    def __init__(self, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.metadata = dict(metadata or {})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if TandemError in cls.__bases__ and "reason" not in vars(cls):
            cls.reason = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()

    def kept(self) -> Self:
        """Returns this error without its traceback, to be stored.

        A stored traceback would keep the request alive.
        """
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions pickle by calling the class with `args`; subclasses take other arguments.
        return (error_from_reason, (self.reason, self.message, self.metadata))


class RequestMalformed(TandemError):
    """The message is not valid protobuf, or an argument cannot become a part of one."""

    def __init__(self, *, why: str, remedy: str = "send a message of tandem.v1") -> None:
        super().__init__(f"the request is malformed: {why}; {remedy}")


class ContentMissing(TandemError):
    """A content has no text, image or regions."""

    def __init__(self) -> None:
        super().__init__("the content has no text, image or regions; send one of them")


class TextEmpty(TandemError):
    """A text has no words."""

    def __init__(self) -> None:
        super().__init__("the text has no words; send at least one")


class TextTooLong(TandemError):
    """A text is over the byte or token limit."""

    def __init__(self, *, got: int, limit: int, unit: str) -> None:
        super().__init__(
            f"the text has {got:,} {unit}, the limit is {limit:,}; shorten it",
            {"got": str(got), "limit": str(limit), "unit": unit},
        )


class ImageUnreadable(TandemError):
    """An image is truncated, damaged, or in a format that is not supported."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the image cannot be read: {why}; send a whole JPEG, PNG or WebP file")


class ImageTooLarge(TandemError):
    """An image is over the byte or pixel limit."""

    def __init__(self, *, got: int, limit: int, unit: str) -> None:
        super().__init__(
            f"the image has {got:,} {unit}, the limit is {limit:,}; scale it down",
            {"got": str(got), "limit": str(limit), "unit": unit},
        )


class RegionsInvalid(TandemError):
    """A detector's regions are damaged, or another detector's."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the regions cannot be read: {why}")


class ImageInputUnsupported(TandemError):
    """The model reads images and got a detector's regions, or the reverse."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, reads: str, got: str) -> None:
        super().__init__(
            f"the model reads {reads} and got {got}; send {reads}, or ask a model that reads {got}",
            {"reads": reads, "got": got},
        )


class KOutOfRange(TandemError):
    """`retrieve_k`, `rerank_k` or `return_n` is out of range."""

    def __init__(self, *, name: str, got: int, low: int, high: int) -> None:
        super().__init__(
            f"{name} is {got:,}; send {low:,} to {high:,}",
            {"name": name, "got": str(got), "low": str(low), "high": str(high)},
        )


class BatchSizeOutOfRange(TandemError):
    """A batch has too many elements, or none."""

    def __init__(self, *, name: str, got: int, low: int, high: int, is_more: bool = False) -> None:
        """Set `is_more` where counting stopped at `got`."""
        super().__init__(
            f"{name} has {'over ' if is_more else ''}{got:,} elements; send {low:,} to {high:,}",
            {"name": name, "got": str(got), "low": str(low), "high": str(high)},
        )


class IndexIdInvalid(TandemError):
    """An index id has the wrong form."""

    def __init__(self, *, index_id: str, remedy: str = "") -> None:
        usual = "use 1 to 63 characters of a-z, 0-9, '_' and '-', starting with a letter or digit"
        super().__init__(f"index_id {_shown(index_id)} is not valid; {remedy or usual}")


class IndexNotFound(TandemError):
    """No index has this id: nothing was ever ingested into it."""

    status = "NOT_FOUND"

    def __init__(self, *, index_id: str, there_are: str = "") -> None:
        super().__init__(
            f"there is no index {_shown(index_id)}{there_are}; ingest into it, or check the id",
            {"index_id": index_id},
        )


class ItemIdInvalid(TandemError):
    """An item id is empty, too long, or cannot be stored."""

    def __init__(self, *, item_id: str, why: str) -> None:
        super().__init__(
            f"item_id {_shown(item_id)} is not valid: {why}; use 1 to 256 bytes of UTF-8 "
            "without NUL"
        )


class ItemIdDuplicate(TandemError):
    """A later item of the batch has the same id, and takes the place of this one."""

    def __init__(self, *, item_id: str) -> None:
        super().__init__(
            f"item_id {_shown(item_id)} is in the batch again, and the last of its items counts",
            {"item_id": item_id},
        )


class EmbeddingInvalid(TandemError):
    """An embedding has the wrong length, is not finite, or is not of unit length."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the embedding is not valid: {why}; send what encoder_svc returned")


class TokensInvalid(TandemError):
    """Content tokens are missing or of the wrong shape."""

    def __init__(self, *, why: str, remedy: str = "send what encoder_svc returned") -> None:
        super().__init__(f"the tokens are not valid: {why}; {remedy}")

    @classmethod
    def of_same_modality(cls, item_id: str = "") -> Self:
        """Returns the error of a candidate that no cross-encoder reads with the query."""
        named = f"item {_shown(item_id)}" if item_id else "a candidate"
        return cls(
            why=f"{named} has the query's modality", remedy="send items of the other modality"
        )


class QueryContentMissing(TandemError):
    """A cross-encoder needs the query's content, and it is not available."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"the cross-encoder needs the query's content, and {why}; send a text or an image, or "
            "set rerank_disabled"
        )


class ModelMismatch(TandemError):
    """The request and the index come from different models."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, request: str, index: str) -> None:
        super().__init__(
            f"the request was encoded by model {_shown(request)}, the index by {_shown(index)}; "
            "ingest into another index, or serve the index's model",
            {"request_fingerprint": request, "index_fingerprint": index},
        )


class ModelUnavailable(TandemError):
    """Triton or one of its models is not available."""

    status = "UNAVAILABLE"

    def __init__(self, *, model: str, why: str) -> None:
        super().__init__(f"model {model} does not answer: {why}; retry later", {"model": model})


class ModelOutputInvalid(TandemError):
    """A model returned a wrong shape, NaN, or nothing."""

    status = "INTERNAL"

    def __init__(self, *, model: str, why: str) -> None:
        super().__init__(
            f"model {model} returned unusable output: {why}; contact the operator",
            {"model": model},
        )


class ServiceUnavailable(TandemError):
    """A downstream service does not answer."""

    status = "UNAVAILABLE"

    def __init__(self, *, service: str, why: str) -> None:
        super().__init__(f"{service} does not answer: {why}; retry later", {"service": service})


class Overloaded(TandemError):
    """The service is at capacity."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, *, what: str, retry_delay_seconds: float = 0.1) -> None:
        super().__init__(
            f"{what}; retry with backoff", {RETRY_DELAY_KEY: f"{retry_delay_seconds:.3f}"}
        )

    @property
    def retry_delay_seconds(self) -> float:
        """The delay after which the service that refused suggests a retry."""
        return _retry_delay_seconds(self.metadata)


class StoreFull(TandemError):
    """The shard's disk or map is full, or it has too many indexes; reads still work."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, *, why: str, advice: str = "delete items or give it more room") -> None:
        super().__init__(f"the item store is full: {why}; {advice}")


class DeadlineExceeded(TandemError):
    """The caller's deadline passed."""

    status = "DEADLINE_EXCEEDED"

    def __init__(self, *, what: str) -> None:
        super().__init__(f"the deadline passed during {what}; allow more time or request less")


class ItemCorrupt(TandemError):
    """A stored value fails its checksum."""

    status = "DATA_LOSS"

    def __init__(self, *, item_id: str, why: str) -> None:
        super().__init__(
            f"stored item {_shown(item_id)} is damaged: {why}; restore it or ingest it again",
            {"item_id": item_id},
        )


class FilterInvalid(TandemError):
    """A filter has no condition, too many, or a bad name or value."""

    why = ""
    """Empty for an error that came over the wire."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the filter is not valid: {why}")
        self.why = why


class AttributeInvalid(TandemError):
    """An attribute has a bad name or value, or there are too many."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the attributes are not valid: {why}")


class RequestIdInvalid(TandemError):
    """A request id is too long."""

    def __init__(self, *, got: int, limit: int) -> None:
        super().__init__(
            f"the request_id has {got:,} bytes, the limit is {limit:,}; shorten it",
            {"got": str(got), "limit": str(limit)},
        )


class RequestIdReused(TandemError):
    """A request id was already used for another write."""

    def __init__(self, *, request_id: str) -> None:
        super().__init__(
            f"request_id {_shown(request_id)} was already used for another write; generate a "
            "new one for each write, and repeat it only with the same items",
            {"request_id": request_id},
        )


class SequenceNotReached(TandemError):
    """The shard's change log did not reach the requested sequence in time."""

    status = "FAILED_PRECONDITION"

    def __init__(
        self,
        *,
        minimum: int,
        applied: int,
        advice: str = "allow more time, or search without a minimum",
    ) -> None:
        super().__init__(
            f"the shard's change log is at {applied:,}, not yet at {minimum:,}; {advice}",
            {"minimum_sequence": str(minimum), "applied_sequence": str(applied)},
        )


class ConsistencyTokenInvalid(TandemError):
    """A consistency token is not from this deployment."""

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"a consistency token is not valid: {why}; send one that "
            "IngestItems or RemoveItems returned"
        )


class ShardsMissing(TandemError):
    """Shards did not answer, and the caller requires more coverage than the others have."""

    status = "UNAVAILABLE"

    def __init__(
        self, *, missing: Mapping[int, str], shard_count: int, is_demanded: bool = False
    ) -> None:
        """`missing` gives the reason for each missing shard, by its number.

        `is_demanded` if the caller itself does not accept an answer without them.
        """
        answered = shard_count - len(missing)
        reasons = ", ".join(f"shard {number}: {why}" for number, why in sorted(missing.items()))
        advice = "retry later, or start the missing ones again"
        if is_demanded and answered:
            advice = "retry later, or ask without full_coverage_required and consistency tokens"
        super().__init__(
            f"{answered} of {shard_count} shards answered ({reasons}); {advice}",
            {
                "missing_shards": ",".join(map(str, sorted(missing))),
                "answered_shard_count": str(answered),
                "shard_count": str(shard_count),
            },
        )


class ShardMapMismatch(TandemError):
    """Caller and shard use different shard maps."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, request_version: int, shard_version: int) -> None:
        super().__init__(
            f"the caller uses shard map {request_version}, the shard {shard_version}; restart "
            "the one with the older map",
            {"request_version": str(request_version), "shard_version": str(shard_version)},
        )


class IndexTypeInvalid(TandemError):
    """FAISS rejects this index type or search parameter."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the index cannot be built or tuned like this: {why}")


class QueryInvalid(TandemError):
    """A search has no query, several kinds of one, or parts that cancel out."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the query is not valid: {why}")


class ItemNotFound(TandemError):
    """The index has no item of this id."""

    status = "NOT_FOUND"

    def __init__(self, *, item_id: str) -> None:
        super().__init__(
            f"there is no item {_shown(item_id)}; ingest it, or check the id", {"item_id": item_id}
        )


class RankingInvalid(TandemError):
    """Fusion, diversity or min_probability is out of range, or they conflict."""

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the ranking options are not valid: {why}")


class CursorInvalid(TandemError):
    """A cursor is not from this deployment, or conflicts with other fields."""

    def __init__(self, *, why: str) -> None:
        super().__init__(
            f"the cursor is not valid: {why}; send the next_cursor of an answer, or search again"
        )


class RerankUnavailable(TandemError):
    """The search requires a full rerank, and it was not possible."""

    status = "UNAVAILABLE"

    def __init__(self, *, stop: str, reranked_depth: int, rerank_k: int) -> None:
        """`stop` is the name of a `RerankStop`."""
        super().__init__(
            f"{reranked_depth} of {rerank_k} candidates were reranked ({stop}); retry later, or "
            "allow bi-encoder order",
            {"stop": stop, "reranked_depth": str(reranked_depth)},
        )


class NeighbourModelMissing(TandemError):
    """The call requires a neighbour model, and none is served."""

    status = "FAILED_PRECONDITION"

    def __init__(self) -> None:
        super().__init__(
            "no neighbour model is served; search without neighbours_required, or add one with "
            "tandem models add-neighbours"
        )


class NeighboursUnavailable(TandemError):
    """The search requires an order by neighbours, and it was not possible."""

    status = "UNAVAILABLE"

    def __init__(self, *, stop: str, missing_shards: Sequence[int] = ()) -> None:
        """`stop` is the name of a `NeighbourStop`."""
        missing = ", ".join(map(str, missing_shards))
        lack = f"; shards without an answer: {missing}" if missing else ""
        super().__init__(
            f"the first items were not ordered by all their neighbours ({stop}{lack}); retry "
            "later, or search without neighbours_required",
            {"stop": stop, "missing_shards": missing},
        )


class TruncationPolicyInvalid(TandemError):
    """The method does not support this truncation policy."""

    def __init__(self, *, policy: str, why: str) -> None:
        super().__init__(f"truncation policy {policy} is not supported here: {why}")


class Unauthenticated(TandemError):
    """The call has no valid token."""

    status = "UNAUTHENTICATED"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"the caller is unknown: {why}; send 'authorization: Bearer TOKEN'")


class PermissionDenied(TandemError):
    """The caller lacks the scope for this call."""

    status = "PERMISSION_DENIED"

    def __init__(self, *, caller: str, what: str) -> None:
        super().__init__(
            f"{_shown(caller)} may not {what}; get a token with that scope from the operator"
        )


class QuotaExceeded(TandemError):
    """The token's quota of calls or pairs a second is used up."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(
        self, *, what: str, rate: float, retry_delay_seconds: float, most: float | None = None
    ) -> None:
        """Set `most` where one request exceeds the burst limit, so that no retry can succeed."""
        then = (
            f"retry in {retry_delay_seconds:.3f} s"
            if most is None
            else f"request at most {math.floor(most):,} at once"
        )
        super().__init__(
            f"the token allows {rate:g} {what} a second; {then}",
            {RETRY_DELAY_KEY: f"{retry_delay_seconds:.3f}"}
            | ({} if most is None else {"most": f"{most:g}"}),
        )

    @property
    def is_final(self) -> bool:
        """Returns whether no repetition can succeed: the request exceeds the burst limit."""
        return "most" in self.metadata

    @property
    def retry_delay_seconds(self) -> float:
        """The delay after which the quota has room again."""
        return _retry_delay_seconds(self.metadata)


class MessageTooLarge(TandemError):
    """A message exceeds the size limit."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"a message is too large: {why}; send fewer items, or smaller ones")


class AnswerTooLarge(TandemError):
    """The requested contents do not fit into one answer."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, *, limit: int) -> None:
        super().__init__(
            f"the requested contents exceed {limit:,} bytes, the limit of one answer; request "
            "fewer items (return_n) and continue with next_cursor, or leave contents out "
            "(content_included)",
            {"limit": str(limit)},
        )


class ServerUnknown(TandemError):
    """Another kind of server answers at this address."""

    status = "UNIMPLEMENTED"

    def __init__(self, *, target: str, why: str) -> None:
        super().__init__(
            f"the server at {target} is not the Tandem service that was called: {why}; check the "
            "address, the server's version, and any proxy before it"
        )


class CrossEncoderMissing(TandemError):
    """The call requires the cross-encoder, and the query's model has none for it."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, what: str) -> None:
        super().__init__(
            f"{what} needs the cross-encoder, and the query has no tokens for one: its model is a "
            "bi-encoder alone; allow bi-encoder order, or serve a model with a cross-encoder"
        )


class Uncalibrated(TandemError):
    """The call needs to know what scores mean, and they were not calibrated."""

    status = "FAILED_PRECONDITION"

    def __init__(
        self,
        *,
        what: str,
        why: str = "the cross-encoder was not",
        remedy: str = "drop it, or calibrate (tandem calibrate, with queries whose answers are "
        "known)",
    ) -> None:
        super().__init__(f"{what} needs calibrated scores: {why}; {remedy}")


class IndexReadOnly(TandemError):
    """The index is another program's table or collection, which Tandem only searches."""

    status = "FAILED_PRECONDITION"

    def __init__(self) -> None:
        super().__init__(
            "the index is attached: another program's data, which Tandem only searches; write "
            "where that program does"
        )


class GenerationRefused(TandemError):
    """A generation cannot be created, promoted or dropped now."""

    status = "FAILED_PRECONDITION"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"nothing was changed: {why}")


class NoteChanged(TandemError):
    """A note of a shard was replaced by another process meanwhile."""

    status = "ABORTED"

    def __init__(self, *, key: str, revision: int) -> None:
        super().__init__(
            f"note {_shown(key)} is at revision {revision} now; read it again, and repeat the call"
        )


class WriterRefused(TandemError):
    """An index takes writes of others now: of callers, or of the follower of a re-embedding."""

    status = "ABORTED"

    def __init__(self, *, index_id: str, who: str) -> None:
        super().__init__(
            f"index {_shown(index_id)} takes the writes of {who} now; repeat the call, which goes "
            "to the generation that serves"
        )


class InternalFault(TandemError):
    """Tandem has a bug, or a state it did not expect."""

    reason = "INTERNAL"
    status = "INTERNAL"

    def __init__(self, *, why: str) -> None:
        super().__init__(f"internal error: {why}; report the request id to the operator")


ERROR_CLASSES: Mapping[str, type[TandemError]] = {
    error_class.reason: error_class for error_class in TandemError.__subclasses__()
}
"""Maps reasons to classes; a test holds it equal to `tandem.v1.ErrorReason`."""


def error_from_reason(reason: str, message: str, metadata: Mapping[str, str]) -> TandemError:
    """Rebuilds an error from the wire with the sender's message.

    A reason that is unknown to this version becomes an `InternalFault` that names it.
    """
    error_class = ERROR_CLASSES.get(reason)
    if error_class is None:
        return InternalFault(why=f"unknown reason {_shown(reason)}: {message}")
    # The constructor builds the message from values that are not on the wire.
    error = error_class.__new__(error_class)
    TandemError.__init__(error, message, metadata)
    return error


def error_of_exhausted(target: str, details: str) -> TandemError:
    """Returns the error for a RESOURCE_EXHAUSTED of gRPC's own, which has a text but no reason."""
    if "larger than max" in details:
        return MessageTooLarge(why=details)
    return Overloaded(what=f"{target} is at capacity: {details}")


def _retry_delay_seconds(metadata: Mapping[str, str]) -> float:
    try:
        seconds = float(metadata[RETRY_DELAY_KEY])
    except (KeyError, ValueError):  # The sender gave none.
        return 0.1
    return seconds if 0 < seconds < 3600 else 0.1


def _shown(value: str) -> str:
    # Callers' values may hold lone surrogates, and go into logs and statuses: hence ascii().
    return ascii(value if len(value) <= 64 else value[:64] + "…")
