"""Scores candidates by their ids, with a cache and in batches."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.chassis.capacity.single_flight_cache import Computation
from tandem.contract.content import ImageTokens, Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.fusion import FusionMethod
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ProbabilityCalibration
from tandem.errors import (
    CrossEncoderMissing,
    ModelMismatch,
    TandemError,
    TokensInvalid,
)
from tandem.local.reranking.match_logit_cache import PairKey, make_cache, query_digest
from tandem.local.reranking.metrics import count_cost
from tandem.local.reranking.pair import Pair, QueryPairs
from tandem.local.reranking.picture_tokens import PictureKey, PictureTokens
from tandem.model_io.inference.canary import check_matching
from tandem.model_io.inference.joined_scoring import JoinedCall
from tandem.model_io.inference.served_model import ServedModel
from tandem.model_io.pictures.heif_reader import HeifReader
from tandem.model_io.repository.model_version import FIRST_VERSION
from tandem.stages.candidate_store import CandidateStore, StoredTokens
from tandem.stages.reranking import Candidates, GivenCandidates, Match, ScoredBatch, ScoreQuery


@dataclass(frozen=True, slots=True, eq=False)
class _HashedQuery:
    """A query and its hash."""

    digest: bytes
    query: Tokens
    item_ids: Sequence[str]


PART_BYTES = 16 * 2**20
"""Image tokens that a call holds at once: those of a picture may take 900 kB."""

# The work that DeadlineExceeded names.
_WORK = "the reading of the candidates"
_FUSIONS = {
    "none": FusionMethod.CROSS_ENCODER,
    "add": FusionMethod.LOGIT_ADD,
    "norm_add": FusionMethod.NORMALISED_ADD,
}
_PairName = tuple[bytes, str]  # Within one call: a query's digest and an item's id.


class ModelReranker:
    """Scores candidates that one shard stores."""

    def __init__(  # noqa: PLR0913
        self,
        model: ServedModel,
        candidates: CandidateStore,
        turns: CallerTurns,
        *,
        cache_bytes: int = 0,
        token_cache_bytes: int = 0,
        calibration_of: Callable[[int], ProbabilityCalibration | None] = lambda _: None,
        serving_version: Callable[[], int] = lambda: FIRST_VERSION,
        heif: HeifReader | None = None,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """Reads `candidates`, whose owner closes them.

        Caches up to `cache_bytes` of match logits, and up to `token_cache_bytes` of image tokens of
        a model that recomputes them. `calibration_of` returns the calibration of a model version;
        without one a score has no probability. Rerankers of one `model` score a query's pairs
        together. A call holds `part_bytes` of image tokens, or those of one pair.
        """
        self._model = model
        self._reader = candidates
        self._cache = make_cache(cache_bytes)
        self._pictures = PictureTokens(self._reader, turns, token_cache_bytes, heif)
        self._calibration_of = calibration_of
        self._serving_version = serving_version
        tokens_bytes = model.manifest.image_token_count * model.manifest.token_width * 2
        self._part_pair_count = max(1, part_bytes // max(1, tokens_bytes))

    async def open(self) -> None:
        """Opens the store of the candidates; raises ServiceUnavailable."""
        await self._reader.open()

    async def check(self) -> None:
        """Opens the store and scores one made-up pair; raises a TandemError if either fails."""
        await self.open()
        await check_matching(self._model.at(self._serving_version()))

    async def score(
        self,
        asked: ScoreQuery,
        queries: Sequence[Candidates | TandemError],
        deadline: Deadline,
    ) -> ScoredBatch:
        """Scores each query's candidates; an input that is an error stays one.

        One version of the model scores them all, by default the one that serves. A query fails by
        itself with TokensInvalid unless its candidates have the other modality. Raises errors of
        the whole call: CrossEncoderMissing, IndexNotFound, ModelMismatch if the queries' or the
        served model is not the index's, ModelUnavailable for an unknown version, and errors of
        store and model.
        """
        start_time = time.monotonic()
        if not self._model.manifest.has_pairs:
            raise CrossEncoderMissing(what="a rerank")
        model = self._model.at(asked.model_version or self._serving_version())
        calibration = self._calibration_of(model.version)
        hashed = {
            number: _HashedQuery(
                query_digest(each.tokens, asked.fingerprint, model.version),
                each.tokens,
                each.item_ids,
            )
            for number, each in enumerate(queries)
            if isinstance(each, Candidates)
        }
        digests = [each.digest for each in hashed.values()]
        # Calls of several queries fill their batches by themselves.
        expected = self._model.joined.expected(digests[0]) if len(digests) == 1 else nullcontext()
        with expected as joined_call:
            kept = await self._kept(asked, hashed.values())
            logits, cost, read_seconds = dict(kept), InferenceCost(), 0.0
            errors: dict[int, TandemError] = {}
            for lacking in _in_parts(_lacking(hashed, kept), self._part_pair_count):
                found, failed, part_cost, seconds = await self._scored(
                    model, asked, hashed, lacking, deadline, joined_call
                )
                logits |= found
                errors |= failed
                cost += part_cost
                read_seconds += seconds
        return ScoredBatch(
            [
                each
                if isinstance(each, TandemError)
                else errors.get(number) or _scores(hashed[number], logits, calibration)
                for number, each in enumerate(queries)
            ],
            replace(cost, cache_hit_count=cost.cache_hit_count + len(kept)),
            model.version,
            model.manifest.fingerprint,
            _FUSIONS[model.manifest.default_fusion],
            read_seconds,
            time.monotonic() - start_time - read_seconds,
        )

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Scores candidates that are not stored, without the cache.

        Returns their scores in order, and a batch of no query with the cost. Raises
        CrossEncoderMissing, ModelMismatch, TokensInvalid, and the errors of the model.
        """
        start_time = time.monotonic()
        manifest = self._model.manifest
        if not manifest.has_pairs:
            raise CrossEncoderMissing(what="a rerank")
        if given.fingerprint != manifest.fingerprint:
            raise ModelMismatch(request=given.fingerprint, index=manifest.fingerprint)
        model = self._model.at(given.model_version or self._serving_version())
        calibration = self._calibration_of(model.version)
        own_pairs = QueryPairs(given.query, manifest)
        pairs = [own_pairs.pair(each) for each in given.candidates]
        inferred = await model.match_logits(
            [pair.text.ids for pair in pairs],
            [pair.image.values for pair in pairs],
            deadline.left_for(_WORK),
        )
        count_cost(inferred.cost)
        logits = [float(logit) for logit in inferred.values]
        return [Match.of(logit, calibration) for logit in logits], ScoredBatch(
            [],
            inferred.cost,
            model.version,
            manifest.fingerprint,
            inference_seconds=time.monotonic() - start_time,
        )

    async def _kept(
        self, asked: ScoreQuery, hashed: Collection[_HashedQuery]
    ) -> dict[_PairName, float]:
        """Returns the cached logits of the items' current versions."""
        if not (hashed and self._cache.is_on):
            return {}
        item_ids = list(dict.fromkeys(item_id for each in hashed for item_id in each.item_ids))
        versions = await self._reader.versions(asked, item_ids)
        keys = {
            PairKey(each.digest, asked.index_id, item_id, versions[item_id])
            for each in hashed
            for item_id in each.item_ids
            if item_id in versions
        }
        return _by_name(self._cache.find(list(keys)))

    async def _scored(
        self,
        model: ServedModel,
        asked: ScoreQuery,
        hashed: Mapping[int, _HashedQuery],
        lacking: Mapping[int, Sequence[str]],
        deadline: Deadline,
        joined_call: JoinedCall | None,
    ) -> tuple[dict[_PairName, float], dict[int, TandemError], InferenceCost, float]:
        """Reads and scores these items of the queries; holds no tokens afterwards.

        Returns logits, the errors of queries by number, the cost, and the seconds of the reading.
        """
        start_time = time.monotonic()
        candidates, picture_cost = await self._candidates(model, asked, lacking, deadline)
        pairs, errors = self._pairs(asked.index_id, hashed, lacking, candidates)
        read_seconds = time.monotonic() - start_time
        logits, cost = await self._computed(model, pairs, deadline, joined_call)
        return logits, errors, picture_cost + cost, read_seconds

    async def _candidates(
        self,
        model: ServedModel,
        asked: ScoreQuery,
        lacking: Mapping[int, Sequence[str]],
        deadline: Deadline,
    ) -> tuple[Mapping[str, StoredTokens], InferenceCost]:
        """Returns the existing items' tokens by id: stored ones, or those of their pictures."""
        item_ids = list(dict.fromkeys(item_id for each in lacking.values() for item_id in each))
        if not item_ids:
            return {}, InferenceCost()
        stored = await self._reader.tokens(asked, item_ids)
        if model.manifest.pair_image is None:  # a detector's regions, which are always stored
            return stored, InferenceCost()
        keys = {
            PictureKey(asked.index_id, item_id, each.version): item_id
            for item_id, each in stored.items()
            if each.tokens.is_empty
        }
        made, cost = await self._pictures.tokens(model, list(keys), asked, deadline)
        texts = {item_id: each for item_id, each in stored.items() if not each.tokens.is_empty}
        return texts | {
            keys[key]: StoredTokens(ImageTokens(tokens), key.item_version)
            for key, tokens in made.items()
        }, cost

    def _pairs(
        self,
        index_id: str,
        hashed: Mapping[int, _HashedQuery],
        lacking: Mapping[int, Sequence[str]],
        stored: Mapping[str, StoredTokens],
    ) -> tuple[dict[PairKey, Pair], dict[int, TandemError]]:
        """Returns the pairs without a logit, of existing items, and the errors."""
        pairs: dict[PairKey, Pair] = {}
        errors: dict[int, TandemError] = {}
        for number, each in hashed.items():
            own_pairs = QueryPairs(each.query, self._model.manifest)
            try:
                pairs |= {
                    # With the version of these tokens, because the item may have been written
                    # since the cache lookup.
                    PairKey(each.digest, index_id, item_id, candidate.version): own_pairs.pair(
                        candidate.tokens, item_id
                    )
                    for item_id in lacking.get(number, ())
                    if (candidate := stored.get(item_id)) is not None
                }
            except TokensInvalid as error:
                errors[number] = error.kept()
        return pairs, errors

    async def _computed(
        self,
        model: ServedModel,
        pairs: Mapping[PairKey, Pair],
        deadline: Deadline,
        joined_call: JoinedCall | None,
    ) -> tuple[dict[_PairName, float], InferenceCost]:
        """Returns the pairs' logits; computes those that no other call is computing."""
        if not pairs:
            return {}, InferenceCost()

        async def compute(keys: Sequence[PairKey]) -> Computation[float, InferenceCost]:
            texts = [pairs[key].text.ids for key in keys]
            images = [pairs[key].image.values for key in keys]
            left_seconds = deadline.left_for(_WORK)
            inferred = (
                await model.match_logits(texts, images, left_seconds)
                if joined_call is None
                else await joined_call.match_logits(model.match_logits, texts, images, left_seconds)
            )
            count_cost(inferred.cost)
            return Computation([float(logit) for logit in inferred.values], inferred.cost)

        lookup = await self._cache.get(list(pairs), compute, deadline.left_for(_WORK))
        cost = sum(lookup.reports, InferenceCost())
        return _by_name(dict(zip(pairs, lookup.values, strict=True))), replace(
            cost, cache_hit_count=lookup.hit_count, cache_miss_count=lookup.miss_count
        )


def _lacking(
    hashed: Mapping[int, _HashedQuery], kept: Mapping[_PairName, float]
) -> dict[int, list[str]]:
    """Returns the ids of each query's items that have no logit yet."""
    return {
        number: [item_id for item_id in each.item_ids if (each.digest, item_id) not in kept]
        for number, each in hashed.items()
    }


def _in_parts(
    lacking: Mapping[int, Sequence[str]], pair_count: int
) -> Iterator[Mapping[int, Sequence[str]]]:
    """Yields parts of the pairs; those of an item are neighbours, so that it is read once."""
    numbers_of: dict[str, list[int]] = {}
    for number, item_ids in lacking.items():
        for item_id in dict.fromkeys(item_ids):
            numbers_of.setdefault(item_id, []).append(number)
    pairs = [(number, item_id) for item_id, numbers in numbers_of.items() for number in numbers]
    for start in range(0, len(pairs), pair_count):
        part: dict[int, list[str]] = {}
        for number, item_id in pairs[start : start + pair_count]:
            part.setdefault(number, []).append(item_id)
        yield part


def _scores(
    query: _HashedQuery,
    logits: Mapping[_PairName, float],
    calibration: ProbabilityCalibration | None,
) -> dict[str, Match]:
    found = {item_id: logits.get((query.digest, item_id)) for item_id in query.item_ids}
    return {
        item_id: Match.of(logit, calibration)
        for item_id, logit in found.items()
        if logit is not None
    }


def _by_name(logits: Mapping[PairKey, float]) -> dict[_PairName, float]:
    return {(key.query_digest, key.item_id): logit for key, logit in logits.items()}
