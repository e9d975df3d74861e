"""Converts candidates to score, and their scores, to messages and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tandem.contract.field_wire import DURATION_WIRE
from tandem.contract.inference_cost import COST_WIRE
from tandem.contract.record_wire import RecordWire, or_error, repeated
from tandem.contract.search.answer_wire import (
    content_from_proto,
    content_to_proto,
    item_error,
    item_error_to_proto,
)
from tandem.contract.search.query_wire import FUSION_WIRE
from tandem.errors import ModelOutputInvalid, TandemError
from tandem.stages.reranking import (
    Candidates,
    GivenCandidates,
    Match,
    Matches,
    ScoredBatch,
    ScoreQuery,
)
from tandem.v1 import rerank_service_pb2 as pb
from tandem.wire import TOKENS_WIRE

QUERY_WIRE = RecordWire(ScoreQuery, pb.ScoreBatchRequest, fingerprint="model_fingerprint")
"""Reads by which index and model to score from a ScoreCandidatesRequest too."""
_CANDIDATES_WIRE = RecordWire(
    Candidates, pb.QueryCandidates, own=["content"], tokens=TOKENS_WIRE.named("query")
)
GIVEN_WIRE = RecordWire(
    GivenCandidates,
    pb.ScoreTokensRequest,
    fingerprint="model_fingerprint",
    query=TOKENS_WIRE,
    candidates=repeated(TOKENS_WIRE),
)
# The fields of a response next to its scores, also of a ScoreCandidatesResponse.
_REPORT_WIRE = RecordWire(
    ScoredBatch,
    pb.ScoreBatchResponse,
    own=["outcomes"],
    cost=COST_WIRE,
    default_fusion=FUSION_WIRE,
    read_seconds=DURATION_WIRE.named("read_duration"),
    inference_seconds=DURATION_WIRE.named("inference_duration"),
)
_GIVEN_REPORT_WIRE = RecordWire(
    ScoredBatch,
    pb.ScoreTokensResponse,
    own=["outcomes", "default_fusion", "read_seconds"],
    cost=COST_WIRE,
    inference_seconds=DURATION_WIRE.named("inference_duration"),
)


def candidates_to_proto(
    query: ScoreQuery, candidates: Candidates, *, content_included: bool
) -> pb.ScoreCandidatesRequest:
    """Returns the request for one query's scores."""
    values = _values(candidates, content_included=content_included)
    return pb.ScoreCandidatesRequest(**QUERY_WIRE.values(query, **values))


def batch_to_proto(
    query: ScoreQuery, requests: Iterable[Candidates], *, content_included: bool
) -> pb.ScoreBatchRequest:
    """Returns the request for the scores of several queries."""
    values = (_values(each, content_included=content_included) for each in requests)
    return QUERY_WIRE.to_proto(query, queries=[pb.QueryCandidates(**each) for each in values])


def batch_from_proto(request: pb.ScoreBatchRequest) -> list[Candidates | TandemError]:
    """Returns each query with its candidates, or its error."""
    return [or_error(candidates_from_proto, each) for each in request.queries]


def candidates_from_proto(message: pb.ScoreCandidatesRequest | pb.QueryCandidates) -> Candidates:
    """Returns a query with its candidates; raises TokensInvalid, and what Candidates raises."""
    has_content = message.HasField("query_content")
    content = content_from_proto(message.query_content) if has_content else None
    return _CANDIDATES_WIRE.from_proto(message, content=content)


def scores_to_proto(
    scored: ScoredBatch, request: pb.ScoreCandidatesRequest
) -> pb.ScoreCandidatesResponse:
    """Returns the response to a request for one query's scores; raises that query's error."""
    return pb.ScoreCandidatesResponse(
        scores=_scores(request.item_ids, scored.matches), **_REPORT_WIRE.values(scored)
    )


def score_batch_to_proto(
    scored: ScoredBatch, request: pb.ScoreBatchRequest
) -> pb.ScoreBatchResponse:
    """Returns the response to a request for the scores of several queries."""
    return pb.ScoreBatchResponse(
        results=[
            pb.ScoreBatchResult(error=item_error_to_proto(outcome))
            if isinstance(outcome, TandemError)
            else pb.ScoreBatchResult(scores=_scores(each.item_ids, outcome))
            for each, outcome in zip(request.queries, scored.outcomes, strict=True)
        ],
        **_REPORT_WIRE.values(scored),
    )


def scores_from_proto(
    response: pb.ScoreCandidatesResponse, candidates: Candidates, service: str
) -> ScoredBatch:
    """Returns one query's scores; raises ModelOutputInvalid for another number of them."""
    return _REPORT_WIRE.from_proto(
        response, outcomes=[_matches(response.scores, candidates, service)]
    )


def score_batch_from_proto(
    response: pb.ScoreBatchResponse, requests: Sequence[Candidates], service: str
) -> ScoredBatch:
    """Returns the scores of several queries; raises ModelOutputInvalid for another number."""
    if len(response.results) != len(requests):
        raise ModelOutputInvalid(
            model=service, why=f"{len(response.results)} results of {len(requests)}"
        )
    return _REPORT_WIRE.from_proto(
        response,
        outcomes=[
            item_error(result.error)
            if result.HasField("error")
            else _matches(result.scores, candidates, service)
            for candidates, result in zip(requests, response.results, strict=True)
        ],
    )


def given_scores_to_proto(matches: Iterable[Match], scored: ScoredBatch) -> pb.ScoreTokensResponse:
    """Returns the response with the scores of candidates that are not stored."""
    return _GIVEN_REPORT_WIRE.to_proto(scored, scores=map(_match_to_proto, matches))


def given_scores_from_proto(
    response: pb.ScoreTokensResponse, count: int, service: str
) -> tuple[Sequence[Match], ScoredBatch]:
    """Returns that many scores and a batch of none with the cost; raises ModelOutputInvalid."""
    found = _matches_or_none(response.scores, count, service)
    matches = [match for match in found if match is not None]
    if len(matches) != count:
        raise ModelOutputInvalid(model=service, why="a candidate has no score")
    return matches, _GIVEN_REPORT_WIRE.from_proto(response, outcomes=[])


def _matches_or_none(
    scores: Sequence[pb.CandidateScore], count: int, service: str
) -> list[Match | None]:
    """Returns that many scores, None without a logit."""
    if len(scores) != count:
        raise ModelOutputInvalid(model=service, why=f"{len(scores)} scores of {count}")
    return list(map(_match, scores))


def _values(candidates: Candidates, *, content_included: bool) -> dict[str, Any]:
    content = candidates.content if content_included else None
    return _CANDIDATES_WIRE.values(candidates, query_content=content and content_to_proto(content))


def _scores(item_ids: Iterable[str], matches: Matches) -> Iterator[pb.CandidateScore]:
    return (_match_to_proto(matches.get(item_id)) for item_id in item_ids)


def _matches(
    scores: Sequence[pb.CandidateScore], candidates: Candidates, service: str
) -> Mapping[str, Match]:
    found = _matches_or_none(scores, len(candidates.item_ids), service)
    pairs = zip(candidates.item_ids, found, strict=True)
    return {item_id: match for item_id, match in pairs if match is not None}


def _match_to_proto(match: Match | None) -> pb.CandidateScore:
    """Returns the message of a score, empty for an item that no longer exists."""
    if match is None:
        return pb.CandidateScore()
    return pb.CandidateScore(match_logit=match.logit, match_probability=match.probability)


def _match(score: pb.CandidateScore) -> Match | None:
    if not score.HasField("match_logit"):
        return None
    has_probability = score.HasField("match_probability")
    return Match(score.match_logit, score.match_probability if has_probability else None)
