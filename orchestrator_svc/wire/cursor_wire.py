"""Converts the remaining items of an answer into a cursor, and a cursor into pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from orchestrator_svc.wire.cursor import MAX_CURSOR_BYTES, seal_cursor, unseal_cursor
from orchestrator_svc.wire.cursor_shape import MAX_ITEM_COUNT, check_cursor_shape
from tandem.contract.content import Modality
from tandem.contract.hybrid import HybridRank, hybrid_rank_from_proto, hybrid_rank_to_proto
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_RETRIEVE_K, check_k
from tandem.errors import CursorInvalid, InternalFault, TandemError
from tandem.search.ranking.explanation import RankExplanation, RankTerm, StageRank
from tandem.search.ranking.ranking import RankedHit
from tandem.stages.hit import Hit
from tandem.stages.reranking import Match
from tandem.v1 import search_cursor_pb2, search_service_pb2
from tandem.wire import modality_from_proto, modality_to_proto

# The fields that a request with a cursor may set.
_PAGE_FIELDS = ("cursor", "index_id", "return_n", "content_included", "attributes_included")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """Holds a page of an earlier answer, all of it from the cursor."""

    ranked: Sequence[RankedHit]
    content_included: bool
    attributes_included: bool
    held: search_cursor_pb2.SearchCursor
    """What applies to the whole answer; its columns are those of later pages."""
    next_cursor: bytes

    @property
    def index_id(self) -> str:
        """The index that was searched."""
        return self.held.index_id


def make_cursor(
    remaining: Sequence[RankedHit],
    answer: search_service_pb2.SearchItemsResponse,
    *,
    index_id: str,
    return_n: int,
) -> bytes:
    """Returns the cursor for the remaining items of the answer; empty if there are none."""
    if not remaining:
        return b""
    explanations = [entry.explanation for entry in remaining if entry.explanation is not None]
    held = search_cursor_pb2.SearchCursor(
        index_id=index_id,
        model_fingerprint=answer.model_fingerprint,
        model_version=answer.model_version,
        return_n=return_n,
        given_count=remaining[0].final_rank - 1,
        coverage=answer.coverage,
        rerank=answer.rerank,
        degradations=answer.degradations,
        item_ids=[entry.hit.item_id for entry in remaining],
        similarities=[entry.hit.similarity for entry in remaining],
        match_logits=[entry.match.logit if entry.match else math.nan for entry in remaining],
        match_probabilities=[
            (math.nan if entry.match.probability is None else entry.match.probability)
            if entry.match
            else 0.0
            for entry in remaining
        ],
        retrieve_ranks=[entry.retrieve_rank for entry in remaining],
        modalities=[modality_to_proto(entry.hit.modality or Modality.IMAGE) for entry in remaining],
        scores=[entry.score for entry in remaining],
        explanations=map(explanation_to_proto, explanations),
        neighbours=answer.neighbours if answer.HasField("neighbours") else None,
        neighbour_scores=_neighbour_scores(remaining) if answer.HasField("neighbours") else (),
        hybrids=[hybrid_rank_to_proto(each.hit.hybrid) for each in remaining if each.hit.hybrid],
    )
    return _sealed(held)


def page_from_proto(request: search_service_pb2.SearchItemsRequest) -> Page:
    """Returns the requested page; raises CursorInvalid, KOutOfRange or IndexIdInvalid."""
    index_id = check_index_id(request.index_id)
    unexpected = [field.name for field, _ in request.ListFields() if field.name not in _PAGE_FIELDS]
    if unexpected:
        raise CursorInvalid(why=f"{unexpected[0]} cannot be set with a cursor")
    held = _opened(request.cursor)
    if held.index_id != index_id:
        raise CursorInvalid(why="it belongs to a search of another index")
    return_n = request.return_n if request.HasField("return_n") else held.return_n
    check_k("return_n", return_n, MAX_RETRIEVE_K)
    ranked = _ranked(held, return_n)
    for column in _COLUMNS:
        # Items after the page are checked when they are requested.
        del getattr(held, column)[:return_n]
    held.given_count += len(ranked)
    next_cursor = _sealed(held) if held.item_ids else b""
    return Page(ranked, request.content_included, request.attributes_included, held, next_cursor)


def explanation_to_proto(explanation: RankExplanation) -> search_service_pb2.Explanation:
    """Returns the message of an explanation."""
    return search_service_pb2.Explanation(
        terms=[
            search_service_pb2.ScoreTerm(name=term.name, value=term.value, weight=term.weight)
            for term in explanation.terms
        ],
        ranks=[
            search_service_pb2.StageRank(stage=each.stage, rank=each.rank)
            for each in explanation.ranks
        ],
    )


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


def _neighbour_scores(remaining: Sequence[RankedHit]) -> list[float]:
    return [
        math.nan if entry.neighbour_score is None else entry.neighbour_score for entry in remaining
    ]


def _sealed(held: search_cursor_pb2.SearchCursor) -> bytes:
    cursor = seal_cursor(held.SerializeToString())
    if len(cursor) > MAX_CURSOR_BYTES:
        raise InternalFault(why=f"a cursor would have {len(cursor):,} bytes")
    return cursor


def _opened(cursor: bytes) -> search_cursor_pb2.SearchCursor:
    """Opens the cursor, and checks the lengths and ranges of its columns."""
    held_bytes = unseal_cursor(cursor)
    check_cursor_shape(held_bytes)
    held = search_cursor_pb2.SearchCursor()
    try:
        held.ParseFromString(held_bytes)
    except DecodeError:
        raise CursorInvalid(why="its payload cannot be read") from None
    count = len(held.item_ids)
    lengths = {
        len(getattr(held, column)) for column in _COLUMNS if column not in _REQUESTED_COLUMNS
    }
    if (
        not 1 <= count <= MAX_ITEM_COUNT
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


def _ranked(held: search_cursor_pb2.SearchCursor, count: int) -> list[RankedHit]:
    """Returns the first items; raises CursorInvalid if one is malformed."""
    try:
        return [_ranked_hit(held, place) for place in range(min(count, len(held.item_ids)))]
    except ValueError as error:
        raise CursorInvalid(why=str(error)) from None
    except TandemError as error:
        raise CursorInvalid(why=error.message) from None


def _ranked_hit(held: search_cursor_pb2.SearchCursor, place: int) -> RankedHit:
    modality = modality_from_proto(held.modalities[place])
    if modality is None:
        raise ValueError("a modality is unknown")
    logit = held.match_logits[place]
    match = None
    if not math.isnan(logit):
        probability = held.match_probabilities[place]
        match = Match(_finite(logit), None if math.isnan(probability) else _finite(probability))
    neighbour_score = None
    if held.neighbour_scores and not math.isnan(held.neighbour_scores[place]):
        neighbour_score = _finite(held.neighbour_scores[place])
    return RankedHit(
        Hit(
            check_item_id(held.item_ids[place]),
            _finite(held.similarities[place]),
            modality,
            hybrid=_hybrid_rank(held.hybrids[place]) if held.hybrids else None,
        ),
        match,
        held.retrieve_ranks[place],
        held.given_count + 1 + place,
        _finite(held.scores[place]),
        _explanation(held.explanations[place]) if held.explanations else None,
        neighbour_score,
    )


def _hybrid_rank(message: search_service_pb2.HybridRank) -> HybridRank:
    rank = hybrid_rank_from_proto(message)
    _finite(rank.fused_score)
    _finite(rank.keyword_score or 0.0)
    return rank


def _explanation(message: search_service_pb2.Explanation) -> RankExplanation:
    return RankExplanation(
        [RankTerm(term.name, term.value, term.weight) for term in message.terms],
        [StageRank(each.stage, each.rank) for each in message.ranks],
    )


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a score is not finite")
    return value
