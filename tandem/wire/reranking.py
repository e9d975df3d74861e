"""Converts candidates to score, and their scores, to messages and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tandem.contract.inference_cost import cost_from_proto, cost_to_proto
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
from tandem.wire import (
    content_from_proto,
    content_to_proto,
    duration_to_proto,
    fusion_from_proto,
    fusion_to_proto,
    item_error_from_proto,
    item_error_to_proto,
    tokens_from_proto,
    tokens_to_proto,
)

_Scored = pb.ScoreCandidatesResponse | pb.ScoreBatchResponse


def candidates_to_proto(
    query: ScoreQuery, candidates: Candidates, *, content_included: bool
) -> pb.ScoreCandidatesRequest:
    """Returns the request for one query's scores."""
    return pb.ScoreCandidatesRequest(
        index_id=query.index_id,
        model_fingerprint=query.fingerprint,
        model_version=query.model_version,
        **_query(candidates, content_included=content_included),
    )


def batch_to_proto(
    query: ScoreQuery, requests: Iterable[Candidates], *, content_included: bool
) -> pb.ScoreBatchRequest:
    """Returns the request for the scores of several queries."""
    return pb.ScoreBatchRequest(
        index_id=query.index_id,
        model_fingerprint=query.fingerprint,
        queries=[
            pb.QueryCandidates(**_query(each, content_included=content_included))
            for each in requests
        ],
        model_version=query.model_version,
    )


def query_from_proto(request: pb.ScoreCandidatesRequest | pb.ScoreBatchRequest) -> ScoreQuery:
    """Returns by which index and model to score; raises IndexIdInvalid."""
    return ScoreQuery(request.index_id, request.model_fingerprint, request.model_version)


def batch_from_proto(request: pb.ScoreBatchRequest) -> list[Candidates | TandemError]:
    """Returns each query with its candidates, or its error."""
    return [_candidates_or_error(each) for each in request.queries]


def candidates_from_proto(message: pb.ScoreCandidatesRequest | pb.QueryCandidates) -> Candidates:
    """Returns a query with its candidates; raises TokensInvalid, and what Candidates raises."""
    return Candidates(
        # A model without a cross-encoder makes none, and a remote one reads none.
        tokens_from_proto(message.query, may_be_empty=True),
        list(message.item_ids),
        content_from_proto(message.query_content) if message.HasField("query_content") else None,
    )


def scores_to_proto(
    scored: ScoredBatch, request: pb.ScoreCandidatesRequest
) -> pb.ScoreCandidatesResponse:
    """Returns the response to a request for one query's scores; raises that query's error."""
    return pb.ScoreCandidatesResponse(
        scores=_scores(request.item_ids, scored.matches), **_report(scored)
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
        **_report(scored),
    )


def scores_from_proto(
    response: pb.ScoreCandidatesResponse, candidates: Candidates, service: str
) -> ScoredBatch:
    """Returns one query's scores; raises ModelOutputInvalid for another number of them."""
    return _scored(response, [_matches(response.scores, candidates, service)])


def score_batch_from_proto(
    response: pb.ScoreBatchResponse, requests: Sequence[Candidates], service: str
) -> ScoredBatch:
    """Returns the scores of several queries; raises ModelOutputInvalid for another number."""
    if len(response.results) != len(requests):
        raise ModelOutputInvalid(
            model=service, why=f"{len(response.results)} results of {len(requests)}"
        )
    return _scored(
        response,
        [
            item_error_from_proto(result.error)
            if result.HasField("error")
            else _matches(result.scores, candidates, service)
            for candidates, result in zip(requests, response.results, strict=True)
        ],
    )


def given_to_proto(given: GivenCandidates) -> pb.ScoreTokensRequest:
    """Returns the request for the scores of candidates that are not stored."""
    return pb.ScoreTokensRequest(
        query=tokens_to_proto(given.query),
        model_fingerprint=given.fingerprint,
        candidates=map(tokens_to_proto, given.candidates),
        model_version=given.model_version,
    )


def given_from_proto(request: pb.ScoreTokensRequest) -> GivenCandidates:
    """Returns the candidates; raises TokensInvalid, and what GivenCandidates raises."""
    return GivenCandidates(
        request.model_fingerprint,
        tokens_from_proto(request.query, may_be_empty=True),
        [tokens_from_proto(each, may_be_empty=True) for each in request.candidates],
        request.model_version,
    )


def given_scores_to_proto(matches: Iterable[Match], scored: ScoredBatch) -> pb.ScoreTokensResponse:
    """Returns the response with the scores of candidates that are not stored."""
    return pb.ScoreTokensResponse(
        scores=map(_match_to_proto, matches),
        inference_duration=duration_to_proto(scored.inference_seconds),
        cost=cost_to_proto(scored.cost),
        model_version=scored.model_version,
        reranker=scored.reranker,
    )


def given_scores_from_proto(
    response: pb.ScoreTokensResponse, count: int, service: str
) -> tuple[Sequence[Match], ScoredBatch]:
    """Returns that many scores and a batch of none with the cost; raises ModelOutputInvalid."""
    found = _matches_or_none(response.scores, count, service)
    matches = [match for match in found if match is not None]
    if len(matches) != count:
        raise ModelOutputInvalid(model=service, why="a candidate has no score")
    cost = cost_from_proto(response.cost)
    return matches, ScoredBatch([], cost, response.model_version, response.reranker)


def _candidates_or_error(message: pb.QueryCandidates) -> Candidates | TandemError:
    try:
        return candidates_from_proto(message)
    except TandemError as error:
        return error.kept()


def _matches_or_none(
    scores: Sequence[pb.CandidateScore], count: int, service: str
) -> list[Match | None]:
    """Returns that many scores, None without a logit."""
    if len(scores) != count:
        raise ModelOutputInvalid(model=service, why=f"{len(scores)} scores of {count}")
    return list(map(_match, scores))


def _query(candidates: Candidates, *, content_included: bool) -> Mapping[str, Any]:
    content = candidates.content if content_included else None
    return {
        "query": tokens_to_proto(candidates.tokens),
        "item_ids": candidates.item_ids,
        "query_content": None if content is None else content_to_proto(content),
    }


def _report(scored: ScoredBatch) -> Mapping[str, Any]:
    """Returns the fields of a response next to its scores."""
    return {
        "read_duration": duration_to_proto(scored.read_seconds),
        "inference_duration": duration_to_proto(scored.inference_seconds),
        "cost": cost_to_proto(scored.cost),
        "model_version": scored.model_version,
        "reranker": scored.reranker,
        "default_fusion": scored.default_fusion and fusion_to_proto(scored.default_fusion),
    }


def _scores(item_ids: Iterable[str], matches: Matches) -> Iterator[pb.CandidateScore]:
    return (_match_to_proto(matches.get(item_id)) for item_id in item_ids)


def _scored(response: _Scored, outcomes: Sequence[Matches | TandemError]) -> ScoredBatch:
    return ScoredBatch(
        outcomes,
        cost_from_proto(response.cost),
        response.model_version,
        response.reranker,
        fusion_from_proto(response.default_fusion),
    )


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
