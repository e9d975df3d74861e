"""Scores documents against a query: contents that are not stored, and items by id."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from tandem.contract.content import Content, Encoding, Tokens, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import MAX_CONTENT_COUNT, MAX_RERANK_K, check_batch_size
from tandem.errors import (
    ItemNotFound,
    ModelMismatch,
    TandemError,
    TruncationPolicyInvalid,
)
from tandem.search.fan_out import fan_out
from tandem.search.rerank.pair_quota import PairQuota
from tandem.search.shard_map import ShardMap
from tandem.stages.encoding import ContentEncoder, EncodedBatch, EncodePurpose
from tandem.stages.reranking import Candidates, CandidateScorer, Match, ScoredBatch, ScoreQuery

# In one call to rerank_svc: tokens of an image have up to 900 kB.
_TOKENS_COUNT = 32


class TokenScorer(CandidateScorer, Protocol):
    """Scores stored candidates and tokens, as rerank_svc does."""

    async def score_tokens(
        self,
        fingerprint: str,
        query: Tokens,
        candidates: Sequence[Tokens],
        deadline: Deadline,
        model_version: int = 0,
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the candidates' scores, and what scored them at which cost."""
        ...


GivenDocument: TypeAlias = Content | str
"""A content, or the id of a stored item."""


@dataclass(frozen=True, slots=True)
class ScoredDocument:
    """Holds one document's scores, or its error."""

    match: Match | None = None
    """None if the cross-encoder did not score it."""
    similarity: float | None = None
    """None for a stored item."""
    error: TandemError | None = None


@dataclass(frozen=True, slots=True)
class DocumentScores:
    """Holds each document's score, and the models and cost of the scores."""

    documents: Sequence[ScoredDocument]
    fingerprint: str
    reranker: str = ""
    cost: InferenceCost = field(default_factory=InferenceCost)

    @property
    def is_uncalibrated(self) -> bool:
        """Whether scores are no probabilities."""
        return any(each.match and each.match.probability is None for each in self.documents)


class DocumentScorer:
    """Scores documents with the services that searches use."""

    def __init__(
        self, encoder: ContentEncoder, scorers: Sequence[TokenScorer], shard_map: ShardMap
    ) -> None:
        """Takes scorers by shard number, as many as the map has."""
        self._encoder = encoder
        self._scorers = scorers
        self._shard_map = shard_map

    async def embed(
        self,
        contents: Sequence[Content | TandemError],
        policy: TruncationPolicy,
        deadline: Deadline,
    ) -> EncodedBatch:
        """Returns the encoding or the error of each content; an input that is an error stays one.

        Raises BatchSizeOutOfRange, TruncationPolicyInvalid, and the errors of the encoder.
        """
        if policy is TruncationPolicy.BEST_WINDOW:
            raise TruncationPolicyInvalid(
                policy=policy.value, why="BEST_WINDOW makes several embeddings of a text"
            )
        outcomes: list[Encoding | TandemError] = []
        fingerprint, version, cost = "", 0, InferenceCost()
        for start in range(0, len(contents), MAX_CONTENT_COUNT):
            part = contents[start : start + MAX_CONTENT_COUNT]
            sound = [each for each in part if not isinstance(each, TandemError)]
            made = EncodedBatch([], fingerprint)
            if sound:
                made = await self._encoder.encode(
                    sound, deadline, purpose=EncodePurpose.QUERY, truncation_policy=policy
                )
                if fingerprint not in ("", made.fingerprint):
                    raise ModelMismatch(request=fingerprint, index=made.fingerprint)
                fingerprint, version = made.fingerprint, made.model_version
                cost += made.cost
            found = iter(made.outcomes)
            outcomes += [each if isinstance(each, TandemError) else next(found) for each in part]
        return EncodedBatch(outcomes, fingerprint, cost, model_version=version)

    async def score(
        self,
        query: Content,
        documents: Sequence[GivenDocument | TandemError],
        index_id: str,
        policy: TruncationPolicy,
        deadline: Deadline,
    ) -> DocumentScores:
        """Returns each document's score or error, in their order.

        Raises the query's error, errors of the whole call, and TokensInvalid if a stored item has
        the query's modality.
        """
        check_batch_size("documents", len(documents), MAX_RERANK_K)
        given = {n: each for n, each in enumerate(documents) if not isinstance(each, str)}
        stored = {
            n: check_item_id(each) for n, each in enumerate(documents) if isinstance(each, str)
        }
        if stored:
            check_index_id(index_id)
        made = await self.embed([query, *given.values()], policy, deadline)
        encoded_query, *encoded = made.outcomes
        if isinstance(encoded_query, TandemError):
            raise encoded_query
        encodings = dict(zip(given, encoded, strict=True))
        scorable = {
            n: each
            for n, each in encodings.items()
            if isinstance(each, Encoding) and _are_pair(encoded_query.tokens, each.tokens)
        }
        with PairQuota() as quota:
            quota.take(len(scorable) + len(stored))
            matches, of_given = await self._score_given(
                encoded_query.tokens, scorable, made, deadline
            )
            stored_matches, of_stored = await self._score_stored(
                query,
                encoded_query.tokens,
                stored,
                ScoreQuery(index_id, made.fingerprint, made.model_version),
                deadline,
            )
            calls = [*of_given, *of_stored]
            cost = sum((each.cost for each in calls), made.cost)
            quota.note_read(sum(each.cost.pair_count for each in calls))
        similarities = {
            n: float(encoded_query.embedding @ each.embedding)
            for n, each in encodings.items()
            if isinstance(each, Encoding)
        }
        return DocumentScores(
            [
                _document(n, each, encodings, similarities, matches | stored_matches)
                for n, each in enumerate(documents)
            ],
            made.fingerprint,
            next((each.reranker for each in calls if each.reranker), ""),
            cost,
        )

    async def _score_given(
        self,
        query: Tokens,
        encodings: Mapping[int, Encoding],
        made: EncodedBatch,
        deadline: Deadline,
    ) -> tuple[dict[int, Match], list[ScoredBatch]]:
        """Scores contents at any rerank_svc whose circuit breaker is closed, in several calls.

        Returns the matches by document number, and what each call cost.
        """
        matches: dict[int, Match] = {}
        calls = []
        scorer = next((each for each in self._scorers if not each.is_refusing), self._scorers[0])
        for numbers in _parts(list(encodings)):
            tokens = [encodings[number].tokens for number in numbers]
            found, call = await scorer.score_tokens(
                made.fingerprint, query, tokens, deadline, made.model_version
            )
            matches |= dict(zip(numbers, found, strict=True))
            calls.append(call)
        return matches, calls

    async def _score_stored(
        self,
        content: Content,
        tokens: Tokens,
        stored: Mapping[int, str],
        query: ScoreQuery,
        deadline: Deadline,
    ) -> tuple[dict[int, Match], list[ScoredBatch]]:
        """Scores each stored item at the rerank_svc of its shard, in one call a shard.

        Returns the matches by document number, without items that do not exist, and each call's
        answer.
        """
        owned_by = self._shard_map.group(query.index_id, dict.fromkeys(stored.values()))
        calls = await fan_out(
            *(
                self._scorers[number].score(query, Candidates(tokens, owned, content), deadline)
                for number, owned in owned_by.items()
            )
        )
        by_id = {item_id: match for each in calls for item_id, match in each.matches.items()}
        return {n: by_id[item_id] for n, item_id in stored.items() if item_id in by_id}, calls


def _document(
    number: int,
    given: GivenDocument | TandemError,
    encodings: Mapping[int, Encoding | TandemError],
    similarities: Mapping[int, float],
    matches: Mapping[int, Match],
) -> ScoredDocument:
    error = encodings.get(number)
    if isinstance(error, TandemError):
        return ScoredDocument(error=error)
    if isinstance(given, str) and number not in matches:
        return ScoredDocument(error=ItemNotFound(item_id=given))
    return ScoredDocument(matches.get(number), similarities.get(number))


def _are_pair(query: Tokens, document: Tokens) -> bool:
    """Returns whether a cross-encoder can read both; a bi-encoder alone makes empty tokens."""
    is_empty = query.is_empty or document.is_empty
    return query.modality is not document.modality and not is_empty


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), _TOKENS_COUNT):
        yield numbers[start : start + _TOKENS_COUNT]
