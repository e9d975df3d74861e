"""Converts the remaining items of an answer into a cursor, and a cursor into pages."""

import math
from collections.abc import Sequence

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-not-found]

from tandem.chassis.capacity.message_scanner import MessageScanner
from tandem.contract.content import Modality
from tandem.contract.field_wire import MODALITY_WIRE
from tandem.contract.fusion import HYBRID_RANK_WIRE, HybridRank
from tandem.contract.generation_ids import alias_of
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_RETRIEVE_K, check_k
from tandem.contract.methods import RequestLimit
from tandem.contract.search.answer import NO_SECONDS, FoundItem, SearchResult, ordering_stage
from tandem.contract.search.answer_wire import (
    COVERAGE_WIRE,
    DEGRADATIONS_WIRE,
    EXPLANATION_WIRE,
    NEIGHBOURS_WIRE,
    RERANK_WIRE,
)
from tandem.contract.search.query import PageQuery
from tandem.errors import CursorInvalid, InternalFault, TandemError
from tandem.search.cursors.cursor import (
    MAX_CURSOR_BYTES,
    MAX_HELD_BYTES,
    seal_cursor,
    unseal_cursor,
)
from tandem.v1 import search_cursor_pb2, search_service_pb2

# Of both modalities.
MAX_ITEM_COUNT = 2 * MAX_RETRIEVE_K
# Two bytes on the wire make protobuf allocate an empty message of some fifty. An item has at most
# some forty fields: three terms and five ranks of an explanation, and one of each column.
_SCANNER = MessageScanner(
    "a cursor",
    search_cursor_pb2.SearchCursor.DESCRIPTOR,  # type: ignore[arg-type]
    RequestLimit(
        MAX_HELD_BYTES,
        60 * MAX_ITEM_COUNT,
        dict.fromkeys(("item_ids", "explanations", "hybrids"), MAX_ITEM_COUNT),
    ),
)


def make_cursor(
    remaining: Sequence[FoundItem], answer: SearchResult, *, index_id: str, return_n: int
) -> bytes:
    """Returns the cursor for the remaining items of the answer; empty if there are none."""
    if not remaining:
        return b""
    held = search_cursor_pb2.SearchCursor(
        index_id=index_id,
        model_fingerprint=answer.model_fingerprint,
        model_version=answer.model_version,
        return_n=return_n,
        given_count=remaining[0].final_rank - 1,
        coverage=COVERAGE_WIRE.to_proto(answer.coverage),
        rerank=RERANK_WIRE.to_proto(answer.rerank),
        degradations=DEGRADATIONS_WIRE.to_proto(answer.degradations),
        item_ids=[item.item_id for item in remaining],
        similarities=[item.similarity for item in remaining],
        match_logits=[
            math.nan if item.match_logit is None else item.match_logit for item in remaining
        ],
        match_probabilities=[_held_probability(item) for item in remaining],
        retrieve_ranks=[item.retrieve_rank for item in remaining],
        modalities=[MODALITY_WIRE.to_proto(item.modality or Modality.IMAGE) for item in remaining],
        scores=[item.score for item in remaining],
        explanations=[
            EXPLANATION_WIRE.to_proto(each.explanation) for each in remaining if each.explanation
        ],
        neighbours=NEIGHBOURS_WIRE.to_proto(answer.neighbours) if answer.neighbours else None,
        neighbour_scores=_neighbour_scores(remaining) if answer.neighbours else (),
        hybrids=[HYBRID_RANK_WIRE.to_proto(item.hybrid) for item in remaining if item.hybrid],
    )
    return _sealed(held)


def page_of(query: PageQuery) -> tuple[SearchResult, str]:
    """Returns the page without contents, and the generation of the index in which they are.

    Raises CursorInvalid, KOutOfRange or IndexIdInvalid.
    """
    index_id = check_index_id(query.index_id)
    held = _opened(query.cursor)
    if index_id not in (held.index_id, alias_of(held.index_id)):
        raise CursorInvalid(why="it belongs to a search of another index")
    return_n = held.return_n if query.return_n is None else query.return_n
    check_k("return_n", return_n, MAX_RETRIEVE_K)
    found = _found(held, return_n)
    for column in _COLUMNS:
        # Items after the page are checked when they are requested.
        del getattr(held, column)[:return_n]
    held.given_count += len(found)
    page = SearchResult(
        tuple(found),
        held.model_fingerprint,
        NO_SECONDS,
        COVERAGE_WIRE.from_proto(held.coverage),
        RERANK_WIRE.from_proto(held.rerank),
        DEGRADATIONS_WIRE.from_proto(held.degradations),
        next_cursor=_sealed(held) if held.item_ids else b"",
        model_version=held.model_version,
        neighbours=NEIGHBOURS_WIRE.from_proto(held.neighbours)
        if held.HasField("neighbours")
        else None,
    )
    return page, held.index_id


_COLUMNS = (
    "item_ids",
    "similarities",
    "match_logits",
    "match_probabilities",
    "retrieve_ranks",
    "modalities",
    "scores",
    "explanations",
    "neighbour_scores",
    "hybrids",
)
_REQUESTED_COLUMNS = ("explanations", "neighbour_scores", "hybrids")
"""Those that are empty unless the search asked for them."""


def _held_probability(item: FoundItem) -> float:
    if item.match_logit is None:
        return 0.0
    return math.nan if item.match_probability is None else item.match_probability


def _neighbour_scores(remaining: Sequence[FoundItem]) -> list[float]:
    return [
        math.nan if item.neighbour_score is None else item.neighbour_score for item in remaining
    ]


def _sealed(held: search_cursor_pb2.SearchCursor) -> bytes:
    cursor = seal_cursor(held.SerializeToString())
    if len(cursor) > MAX_CURSOR_BYTES:
        raise InternalFault(why=f"a cursor would have {len(cursor):,} bytes")
    return cursor


def _opened(cursor: bytes) -> search_cursor_pb2.SearchCursor:
    """Opens the cursor, and checks the lengths and ranges of its columns."""
    held_bytes = unseal_cursor(cursor)
    held = search_cursor_pb2.SearchCursor()
    try:
        _SCANNER.check(held_bytes)
        held.ParseFromString(held_bytes)
    except DecodeError:
        raise CursorInvalid(why="its payload cannot be read") from None
    except TandemError as error:
        raise CursorInvalid(why=error.message) from None
    count = len(held.item_ids)
    lengths = {
        len(getattr(held, column)) for column in _COLUMNS if column not in _REQUESTED_COLUMNS
    }
    if (
        UnknownFieldSet(held)
        or not 1 <= count <= MAX_ITEM_COUNT
        or not 1 <= held.given_count <= MAX_ITEM_COUNT
        or not 1 <= held.return_n <= MAX_RETRIEVE_K
        or held.model_version < 0
        or lengths != {count}
        or any(len(getattr(held, column)) not in (0, count) for column in _REQUESTED_COLUMNS)
        or not 1 <= min(held.retrieve_ranks) <= max(held.retrieve_ranks) <= MAX_ITEM_COUNT
        # Otherwise a few bytes could request one large item many times. An id may appear as a text
        # and as an image, if it was replaced during the search.
        or len(set(zip(held.item_ids, held.modalities, strict=True))) != count
    ):
        raise CursorInvalid(why="its contents are inconsistent")
    return held


def _found(held: search_cursor_pb2.SearchCursor, count: int) -> list[FoundItem]:
    """Returns the first items; raises CursorInvalid if one is malformed."""
    try:
        return [_found_item(held, place) for place in range(min(count, len(held.item_ids)))]
    except ValueError as error:
        raise CursorInvalid(why=str(error)) from None
    except TandemError as error:
        raise CursorInvalid(why=error.message) from None


def _found_item(held: search_cursor_pb2.SearchCursor, place: int) -> FoundItem:
    modality = MODALITY_WIRE.from_proto(held.modalities[place])
    if modality is None:
        raise ValueError("a modality is unknown")
    logit = _known(held.match_logits[place])
    probability = None if logit is None else _known(held.match_probabilities[place])
    neighbour_score = _known(held.neighbour_scores[place]) if held.neighbour_scores else None
    return FoundItem(
        item_id=check_item_id(held.item_ids[place]),
        similarity=_finite(held.similarities[place]),
        match_logit=logit,
        match_probability=probability,
        retrieve_rank=held.retrieve_ranks[place],
        final_rank=held.given_count + 1 + place,
        content=None,
        modality=modality,
        score=_finite(held.scores[place]),
        explanation=EXPLANATION_WIRE.from_proto(held.explanations[place])
        if held.explanations
        else None,
        neighbour_score=neighbour_score,
        hybrid=_hybrid_rank(held.hybrids[place]) if held.hybrids else None,
        ordered_by=ordering_stage(logit, neighbour_score),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else _finite(value)


def _hybrid_rank(message: search_service_pb2.HybridRank) -> HybridRank:
    rank = HYBRID_RANK_WIRE.from_proto(message)
    _finite(rank.fused_score)
    _finite(rank.keyword_score or 0.0)
    return rank


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a score is not finite")
    return value
