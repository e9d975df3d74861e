"""Describes how a shard searched (`tandem.v1.SearchPath`).

A value of the wire that is unknown to this version becomes the first of its enum.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from typing_extensions import Self

from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.modality import Modality
from tandem.contract.record_wire import Field, RecordWire, numbered, or_none
from tandem.v1 import index_service_pb2 as pb
from tandem.v1 import search_service_pb2


class _FirstIfUnknown(Enum):
    @classmethod
    def _missing_(cls, _: object) -> Self:
        return next(iter(cls))


class SearchStrategy(_FirstIfUnknown):
    """The strategies of `tandem.v1.SearchStrategy`."""

    UNKNOWN = pb.SEARCH_STRATEGY_UNSPECIFIED
    """Sent by a shard of another version."""
    UNFILTERED = pb.SEARCH_STRATEGY_UNFILTERED
    PRE_FILTER = pb.SEARCH_STRATEGY_PRE_FILTER
    POST_FILTER = pb.SEARCH_STRATEGY_POST_FILTER
    EXACT_SCAN = pb.SEARCH_STRATEGY_EXACT_SCAN


class SearchFallback(_FirstIfUnknown):
    """The reasons of `tandem.v1.SearchFallback`."""

    NONE = pb.SEARCH_FALLBACK_UNSPECIFIED
    BEING_BUILT = pb.SEARCH_FALLBACK_BEING_BUILT
    NOT_BUILT = pb.SEARCH_FALLBACK_NOT_BUILT
    DEVICE = pb.SEARCH_FALLBACK_DEVICE
    TOO_FEW_FOUND = pb.SEARCH_FALLBACK_TOO_FEW_FOUND


class KeywordState(_FirstIfUnknown):
    """Says whether a shard searched by words; names are those of `tandem.v1.KeywordState`."""

    DISABLED = pb.KEYWORD_STATE_DISABLED
    """It keeps no words, or is of an earlier version."""
    SEARCHED = pb.KEYWORD_STATE_SEARCHED
    BEING_BUILT = pb.KEYWORD_STATE_BEING_BUILT


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why a search did not use the configured index, for programs and people."""

    kind: SearchFallback = SearchFallback.NONE
    why: str = ""

    def __bool__(self) -> bool:
        return self.kind is not SearchFallback.NONE


NO_FALLBACK = Fallback()


@dataclass(frozen=True, slots=True)
class SearchPath:
    """How a shard searched; the fields are those of `tandem.v1.SearchPath`."""

    strategy: SearchStrategy
    index_type: str = ""
    """The FAISS index that was searched; empty for an exact scan."""
    device: str = "cpu"
    fallback: Fallback = field(default=NO_FALLBACK)
    matching_count: int | None = None
    """The items that match the filter, if it was evaluated first."""

    @property
    def fallback_reason(self) -> str:
        """Why the configured index was not used, for people; empty if it was."""
        return self.fallback.why

    @property
    def is_rebuilding(self) -> bool:
        """Returns whether an exact scan replaced an index that is being built."""
        return (
            self.strategy is SearchStrategy.EXACT_SCAN
            and self.fallback.kind is SearchFallback.BEING_BUILT
        )


@dataclass(frozen=True, slots=True)
class ShardRetrieval:
    """How one shard searched."""

    shard_number: int
    modality: Modality | None
    """The modality searched; None if unknown."""
    path: SearchPath
    item_count: int
    """The items of the index and modality, before the filter."""
    keyword_state: KeywordState | None = None
    """Whether it searched by words; None if none were to be searched for."""


def fallback_to_proto(fallback: Fallback) -> dict[str, Any]:
    """Returns the two fields that a message has for it."""
    return {"fallback": fallback.kind.value, "fallback_reason": fallback.why}


def fallback_from_proto(message: pb.SearchPath | pb.IndexPart) -> Fallback:
    """Returns why the message's search or index is not as configured."""
    return Fallback(SearchFallback(message.fallback), message.fallback_reason)


_PATH_WIRE = RecordWire(
    SearchPath, pb.SearchPath, own=["fallback"], strategy=numbered(SearchStrategy)
)
PATH_WIRE = Field[SearchPath, SearchPath](
    lambda path: _PATH_WIRE.to_proto(path, **fallback_to_proto(path.fallback)),
    lambda message: _PATH_WIRE.from_proto(message, fallback=fallback_from_proto(message)),
)
RETRIEVAL_WIRE = RecordWire(
    ShardRetrieval,
    search_service_pb2.ShardRetrieval,
    modality=MODALITY_WIRE,
    path=PATH_WIRE,
    keyword_state=or_none(numbered(KeywordState)),
)
