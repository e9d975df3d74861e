"""Scores stored candidates with a remote cross-encoder, with a cache of match logits."""

import asyncio
import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.chassis.access.callers import asking_caller
from tandem.chassis.capacity.single_flight_cache import Computation
from tandem.contract.content import (
    Content,
    ImageContent,
    Modality,
    TextContent,
)
from tandem.contract.deadline import Deadline
from tandem.contract.fusion import FusionMethod
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import ProbabilityCalibration
from tandem.contract.regions import RegionContent
from tandem.errors import (
    QueryContentMissing,
    TandemError,
)
from tandem.local.reranking.match_logit_cache import PairKey, make_cache
from tandem.local.reranking.metrics import count_cost
from tandem.local.reranking.picture_tokens import PictureKey
from tandem.local.reranking.remote.canary import RemoteCanary
from tandem.local.reranking.remote.endpoint import RemoteEndpoint
from tandem.local.reranking.remote.remote_scorer import RemoteScorer
from tandem.local.reranking.remote.shapes import Document
from tandem.local.reranking.remote.stored_documents import StoredDocuments
from tandem.model_io.repository.model_version import FIRST_VERSION
from tandem.stages.candidate_store import CandidateStore
from tandem.stages.reranking import Candidates, GivenCandidates, Match, ScoredBatch, ScoreQuery

# The logit of an item that is gone, or that cannot be sent to the API.
_NO_LOGIT = math.nan
# The work that DeadlineExceeded names.
_WORK = "the remote rerank"


@dataclass(frozen=True, slots=True, eq=False)
class _RemoteQuery:
    """Holds a query with its hash and its document."""

    digest: bytes
    modality: Modality
    document: Document
    item_ids: Sequence[str]


@dataclass(slots=True, eq=False)
class _RemoteCall:
    """Holds what all batches of one call share."""

    asked: ScoreQuery
    deadline: Deadline
    queries: Mapping[bytes, _RemoteQuery]
    read_seconds: list[float] = field(default_factory=list)


class HttpReranker:
    """Reads candidates' contents where `ModelReranker` reads tokens, and posts them to an API."""

    def __init__(
        self,
        scorer: RemoteScorer,
        endpoint: RemoteEndpoint,
        reader: CandidateStore,
        documents: StoredDocuments,
        *,
        canary: RemoteCanary,
        cache_bytes: int = 0,
        calibration: ProbabilityCalibration | None = None,
    ) -> None:
        """Caches up to `cache_bytes` of logits; without `calibration` it gives no probabilities."""
        self._scorer = scorer
        self._endpoint = endpoint
        self._reader = reader
        self._documents = documents
        self._canary = canary
        self._cache = make_cache(cache_bytes, is_kept=math.isfinite)
        self._calibration = calibration
        # No more batches are read than are sent.
        self._batches = asyncio.Semaphore(endpoint.max_request_count)

    async def check(self) -> None:
        """Opens the store and checks the canary; raises a TandemError if either fails."""
        await self._reader.open()
        await self._canary.check()

    async def score(
        self,
        asked: ScoreQuery,
        queries: Sequence[Candidates | TandemError],
        deadline: Deadline,
    ) -> ScoredBatch:
        """Scores each query's candidates; an input that is an error stays one.

        The version is the caller's, and stays as it is: the remote model has no versions. A
        query fails alone with QueryContentMissing. An item that cannot be read as a picture, or has
        the query's own modality, has no score. Raises errors of the whole call: of the store, as
        `ModelReranker.score`, and of the API, as `RemoteHttpClient.post`.
        """
        start_time = time.monotonic()
        remote_queries, errors = await self._remote_queries(queries)
        by_digest = {each.digest: each for each in remote_queries.values()}
        call = _RemoteCall(asked, deadline, by_digest)
        logits, cost = await self._logits(call)
        outcomes = [
            each
            if isinstance(each, TandemError)
            else errors.get(number) or self._scores(remote_queries[number], logits)
            for number, each in enumerate(queries)
        ]
        # Batches are read concurrently, so their sum may exceed the time that passed.
        seconds = time.monotonic() - start_time
        read_seconds = min(sum(call.read_seconds), seconds)
        return ScoredBatch(
            outcomes,
            cost,
            asked.model_version or FIRST_VERSION,
            self._endpoint.identity,
            FusionMethod.CROSS_ENCODER,
            read_seconds,
            seconds - read_seconds,
        )

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Raises QueryContentMissing: the API reads contents, not tokens."""
        raise QueryContentMissing(why="documents that are not stored come only as tokens")

    async def _remote_queries(
        self, queries: Sequence[Candidates | TandemError]
    ) -> tuple[dict[int, _RemoteQuery], dict[int, TandemError]]:
        remote_queries: dict[int, _RemoteQuery] = {}
        errors: dict[int, TandemError] = {}
        for number, each in enumerate(queries):
            if isinstance(each, TandemError):
                continue
            try:
                content = self._checked(each.content)
                document = await self._documents.of_content(content)
            except TandemError as error:
                errors[number] = error.kept()
            else:
                digest = self._digest(document)
                remote_queries[number] = _RemoteQuery(
                    digest, content.modality, document, each.item_ids
                )
        return remote_queries, errors

    def _checked(self, content: Content | None) -> TextContent | ImageContent:
        if content is None:
            raise QueryContentMissing(why="this query comes without one")
        if isinstance(content, RegionContent):
            raise QueryContentMissing(why=f"{self._endpoint.model} reads no regions")
        if content.modality is Modality.IMAGE and not self._endpoint.takes_picture_queries:
            raise QueryContentMissing(why=f"{self._endpoint.model} reads no image as a query")
        return content

    def _digest(self, query: Document) -> bytes:
        digest = hashlib.blake2b(self._endpoint.identity.encode(), digest_size=16)
        # By caller: neither cost nor time tells a caller what another has searched for.
        digest.update(f"\0{asking_caller()}\0{bool(query.picture_uri)}".encode())
        digest.update(f"\0{query.picture_uri or query.text}".encode())
        return digest.digest()

    async def _logits(
        self, call: _RemoteCall
    ) -> tuple[dict[tuple[bytes, str], float], InferenceCost]:
        """Returns logits by query and item; computes those that no other call is computing."""
        item_ids = list(
            dict.fromkeys(item_id for each in call.queries.values() for item_id in each.item_ids)
        )
        if not item_ids:
            return {}, InferenceCost()
        versions = await self._reader.versions(call.asked, item_ids)
        keys = [
            PairKey(each.digest, call.asked.index_id, item_id, versions[item_id])
            for each in call.queries.values()
            for item_id in dict.fromkeys(each.item_ids)
            if item_id in versions
        ]
        if not keys:
            return {}, InferenceCost()

        async def compute(missing: Sequence[PairKey]) -> Computation[float, InferenceCost]:
            return await self._computed(call, missing)

        lookup = await self._cache.get(keys, compute, call.deadline.left_for(_WORK))
        cost = replace(
            sum(lookup.reports, InferenceCost()),
            cache_hit_count=lookup.hit_count,
            cache_miss_count=lookup.miss_count,
        )
        named = ((key.query_digest, key.item_id) for key in keys)
        return dict(zip(named, lookup.values, strict=True)), cost

    async def _computed(
        self, call: _RemoteCall, keys: Sequence[PairKey]
    ) -> Computation[float, InferenceCost]:
        batches = list(_batches(keys, self._endpoint.batch_size))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._batch_logits(call, batch)) for batch in batches]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        logits = {
            key: logit
            for batch, task in zip(batches, tasks, strict=True)
            for key, logit in zip(batch, task.result(), strict=True)
        }
        scored_count = sum(map(math.isfinite, logits.values()))
        cost = InferenceCost(pair_count=scored_count)
        count_cost(cost)
        return Computation([logits[key] for key in keys], cost)

    async def _batch_logits(self, call: _RemoteCall, batch: Sequence[PairKey]) -> list[float]:
        """Returns the logits of one query's batch; NaN for items that cannot be scored."""
        query = call.queries[batch[0].query_digest]
        item_ids = [key.item_id for key in batch]
        async with self._batches:
            start_time = time.monotonic()
            found = await self._documents.of_items(
                [PictureKey(key.index_id, key.item_id, key.item_version) for key in batch],
                call.asked,
                query.modality.other,
                call.deadline,
            )
            call.read_seconds.append(time.monotonic() - start_time)
            logits: dict[str, float] = {}
            if found:
                scored = await self._scorer.score(
                    query.document, list(found.values()), call.deadline.left_for(_WORK)
                )
                logits = dict(zip(found, scored, strict=True))
        return [logits.get(item_id, _NO_LOGIT) for item_id in item_ids]

    def _scores(
        self, query: _RemoteQuery, logits: Mapping[tuple[bytes, str], float]
    ) -> dict[str, Match]:
        found = {
            item_id: logits.get((query.digest, item_id), _NO_LOGIT) for item_id in query.item_ids
        }
        return {
            item_id: Match.of(logit, self._calibration)
            for item_id, logit in found.items()
            if math.isfinite(logit)
        }


def _batches(keys: Sequence[PairKey], size: int) -> Iterator[list[PairKey]]:
    """Yields batches of one query each."""
    by_query: dict[bytes, list[PairKey]] = {}
    for key in keys:
        by_query.setdefault(key.query_digest, []).append(key)
    for of_query in by_query.values():
        for start in range(0, len(of_query), size):
            yield of_query[start : start + size]
