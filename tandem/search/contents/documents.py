"""Scores documents against a query: contents that are not stored, and items by id."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from tandem.contract.content import Content, Encoding, Tokens, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import MAX_CONTENT_COUNT, MAX_DOCUMENT_COUNT, check_batch_size
from tandem.contract.modality import Modality
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.search.answer_names import ErrorReason
from tandem.contract.search.documents import (
    Document,
    DocumentQuery,
    DocumentScore,
    ScoredDocuments,
)
from tandem.contract.search.query import StoredItem
from tandem.errors import (
    ItemNotFound,
    ModelMismatch,
    TandemError,
    TruncationPolicyInvalid,
)
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.calls.guarded import GuardedReranker
from tandem.search.coverage import MISSING_ERRORS
from tandem.search.rerank.pair_quota import PairQuota
from tandem.search.shard_map import ShardMap
from tandem.stages.encoding import EncodedBatch, EncodePurpose, Encoder
from tandem.stages.reranking import Candidates, GivenCandidates, Match, ScoredBatch, ScoreQuery

# In one call to rerank_svc: tokens of an image have up to 900 kB.
_TOKENS_COUNT = 32


class DocumentScorer:
    """Scores documents with the services that searches use."""

    def __init__(
        self, encoder: Encoder, scorers: Sequence[GuardedReranker], shard_map: ShardMap
    ) -> None:
        """Takes scorers by shard number, as many as the map has."""
        self._encoder = encoder
        self._scorers = scorers
        self._shard_map = shard_map
        self._text_scalings: dict[str, ProbabilityCalibration | None] = {}
        """By fingerprint."""

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

    async def score(self, asked: DocumentQuery, deadline: Deadline) -> ScoredDocuments:
        """Returns each document's score or error, in their order.

        A stored item has the error of its shard where that does not answer. Raises the query's
        error, errors of the whole call, that of a shard if none that was asked answers, and
        TokensInvalid if a stored item has the query's modality.
        """
        query, documents, policy = asked.query, asked.documents, asked.truncation_policy
        check_batch_size("documents", len(documents), MAX_DOCUMENT_COUNT)
        given = {n: each for n, each in enumerate(documents) if not isinstance(each, StoredItem)}
        stored = {
            n: check_item_id(each.item_id)
            for n, each in enumerate(documents)
            if isinstance(each, StoredItem)
        }
        if stored:
            check_index_id(asked.index_id)
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
            stored_matches, of_stored, failures = await self._score_stored(
                query,
                encoded_query.tokens,
                stored,
                asked.index_id,
                made,
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
        matches |= stored_matches
        alike = {
            n
            for n, each in encodings.items()
            if isinstance(each, Encoding) and each.tokens.modality is encoded_query.tokens.modality
        }
        scaling = None
        if alike and encoded_query.tokens.modality is Modality.TEXT:
            scaling = await self._text_scaling(made.fingerprint, deadline)
        scores = tuple(
            _score(
                each,
                failures.get(n, encodings.get(n)),
                similarities.get(n),
                matches.get(n),
                scaling if n in alike else None,
            )
            for n, each in enumerate(documents)
        )
        scored = {n for n, each in enumerate(scores) if each.error is None}
        return ScoredDocuments(
            scores,
            made.fingerprint,
            next((each.reranker for each in calls if each.reranker), ""),
            cost,
            ErrorReason.UNCALIBRATED
            if any(match.probability is None for match in matches.values())
            else None,
            encoded_query.text_use,
            bool(alike and scored - alike)
            and any(scores[n].match_probability is None for n in scored),
        )

    async def _text_scaling(
        self, fingerprint: str, deadline: Deadline
    ) -> ProbabilityCalibration | None:
        """Returns what the similarity of two texts means; None if it was not fitted."""
        if fingerprint not in self._text_scalings:
            with suppress(TandemError):  # Then there is a similarity, and no probability.
                model = await self._encoder.describe_model(deadline)
                self._text_scalings[model.fingerprint] = model.text_similarity_calibration
        return self._text_scalings.get(fingerprint)

    async def _score_given(
        self,
        query: Tokens,
        encodings: Mapping[int, Encoding],
        made: EncodedBatch,
        deadline: Deadline,
    ) -> tuple[dict[int, Match], list[ScoredBatch]]:
        """Scores contents at any rerank_svc that answers, in several calls.

        Returns the matches by document number, and what each call cost.
        """
        matches: dict[int, Match] = {}
        calls = []
        for numbers in _parts(list(encodings)):
            tokens = [encodings[number].tokens for number in numbers]
            given = GivenCandidates(made.fingerprint, query, tokens, made.model_version)
            found, call = await self._score_at_any(given, deadline)
            matches |= dict(zip(numbers, found, strict=True))
            calls.append(call)
        return matches, calls

    async def _score_at_any(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the first answer; raises the last error if no rerank_svc gives one."""
        *others, last = [each for each in self._scorers if not each.is_refusing] or self._scorers
        for scorer in others:
            with suppress(*MISSING_ERRORS):
                return await scorer.score_given(given, deadline)
        return await last.score_given(given, deadline)

    async def _score_stored(
        self,
        content: Content,
        tokens: Tokens,
        stored: Mapping[int, str],
        index_id: str,
        made: EncodedBatch,
        deadline: Deadline,
    ) -> tuple[dict[int, Match], list[ScoredBatch], dict[int, TandemError]]:
        """Scores each stored item at the rerank_svc of its shard, in one call a shard.

        Returns the matches by document number, without items that do not exist, each call's answer,
        and the errors of shards that did not answer, by document number.
        """
        if not stored:
            return {}, [], {}
        query = ScoreQuery(index_id, made.fingerprint, made.model_version)
        owned_by = self._shard_map.group(index_id, dict.fromkeys(stored.values()))

        async def score(number: int, owned: Sequence[str]) -> ScoredBatch | TandemError:
            candidates = [Candidates(tokens, owned, content)]
            scoring = self._scorers[number].score(query, candidates, deadline)
            return await answer_or_error(scoring, *MISSING_ERRORS)

        answers = await fan_out(*(score(*entry) for entry in owned_by.items()))
        calls = [each for each in answers if isinstance(each, ScoredBatch)]
        failed = {
            item_id: each
            for owned, each in zip(owned_by.values(), answers, strict=True)
            if isinstance(each, TandemError)
            for item_id in owned
        }
        if not calls:
            raise next(iter(failed.values()))
        by_id = {item_id: match for each in calls for item_id, match in each.matches.items()}
        return (
            {n: by_id[item_id] for n, item_id in stored.items() if item_id in by_id},
            calls,
            {n: failed[item_id] for n, item_id in stored.items() if item_id in failed},
        )


def _score(
    document: Document | TandemError,
    encoding: Encoding | TandemError | None,
    similarity: float | None,
    match: Match | None,
    scaling: ProbabilityCalibration | None,
) -> DocumentScore:
    if isinstance(encoding, TandemError):
        return DocumentScore(None, None, None, encoding)
    if isinstance(document, StoredItem) and match is None:
        return DocumentScore(None, None, None, ItemNotFound(item_id=document.item_id))
    probability = None if match is None else match.probability
    if scaling is not None and similarity is not None:
        probability = scaling.probability(similarity)
    return DocumentScore(
        None if match is None else match.logit,
        probability,
        similarity,
        text_use=None if encoding is None else encoding.text_use,
    )


def _are_pair(query: Tokens, document: Tokens) -> bool:
    """Returns whether a cross-encoder can read both; a bi-encoder alone makes empty tokens."""
    is_empty = query.is_empty or document.is_empty
    return query.modality is not document.modality and not is_empty


def _parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(numbers), _TOKENS_COUNT):
        yield numbers[start : start + _TOKENS_COUNT]
