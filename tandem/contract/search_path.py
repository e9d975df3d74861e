"""How a shard finds nearest items, as it says itself (`tandem.v1.SearchPath`). Pure Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tandem.contract.content import Modality
from tandem.v1 import index_service_pb2 as pb


class SearchStrategy(Enum):
    """What is done first; named as in `tandem.v1.SearchStrategy`."""

    UNKNOWN = pb.SEARCH_STRATEGY_UNSPECIFIED
    """Of a shard of another version."""
    UNFILTERED = pb.SEARCH_STRATEGY_UNFILTERED
    PRE_FILTER = pb.SEARCH_STRATEGY_PRE_FILTER
    POST_FILTER = pb.SEARCH_STRATEGY_POST_FILTER
    EXACT_SCAN = pb.SEARCH_STRATEGY_EXACT_SCAN


class SearchFallback(Enum):
    """Why another way than the index is set to; named as in `tandem.v1.SearchFallback`."""

    NONE = pb.SEARCH_FALLBACK_UNSPECIFIED
    BEING_BUILT = pb.SEARCH_FALLBACK_BEING_BUILT
    NOT_BUILT = pb.SEARCH_FALLBACK_NOT_BUILT
    DEVICE = pb.SEARCH_FALLBACK_DEVICE
    TOO_FEW_FOUND = pb.SEARCH_FALLBACK_TOO_FEW_FOUND


@dataclass(frozen=True, slots=True)
class Fallback:
    """Why a search went another way, for programs and for a person."""

    kind: SearchFallback = SearchFallback.NONE
    why: str = ""

    def __bool__(self) -> bool:
        return self.kind is not SearchFallback.NONE


NO_FALLBACK = Fallback()


@dataclass(frozen=True, slots=True)
class SearchPath:
    """How nearest items were found; the fields are those of `tandem.v1.SearchPath`."""

    strategy: SearchStrategy
    index_type: str = ""
    """The FAISS index that was asked; empty where every item was compared."""
    device: str = "cpu"
    fallback: Fallback = field(default=NO_FALLBACK)
    matching_count: int | None = None
    """Items that the filter holds for, where it was evaluated beforehand."""

    @property
    def fallback_reason(self) -> str:
        """Why not as the index is set to, for a person; empty where it was."""
        return self.fallback.why

    @property
    def is_rebuilding(self) -> bool:
        """Whether every item was compared for want of an index that is being built."""
        return (
            self.strategy is SearchStrategy.EXACT_SCAN
            and self.fallback.kind is SearchFallback.BEING_BUILT
        )


@dataclass(frozen=True, slots=True)
class ShardRetrieval:
    """How one shard found its items."""

    shard_number: int
    modality: Modality | None
    """What was looked for; None where the server does not say."""
    path: SearchPath
    item_count: int
    """Items of the index and modality there, filtered out or not."""


def path_to_proto(path: SearchPath) -> pb.SearchPath:
    """Returns the message that `path_from_proto` reads as the path."""
    return pb.SearchPath(
        strategy=path.strategy.value,
        index_type=path.index_type,
        device=path.device,
        fallback_reason=path.fallback.why,
        fallback=path.fallback.kind.value,
        matching_count=path.matching_count,
    )


def path_from_proto(message: pb.SearchPath) -> SearchPath:
    """Returns the path; what a newer server knows and this version does not is not told."""
    strategies = {each.value: each for each in SearchStrategy}
    kinds = {each.value: each for each in SearchFallback}
    return SearchPath(
        strategies.get(message.strategy, SearchStrategy.UNKNOWN),
        message.index_type,
        message.device,
        Fallback(kinds.get(message.fallback, SearchFallback.NONE), message.fallback_reason),
        message.matching_count if message.HasField("matching_count") else None,
    )
