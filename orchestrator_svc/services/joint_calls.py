"""The services behind, for several searches at once: what they ask at one time is one call."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from orchestrator_svc.content_room import Taking
from orchestrator_svc.services.clients import (
    EncodedContents,
    EncodePurpose,
    FetchedItem,
    ShardClient,
    ShardHits,
)
from orchestrator_svc.services.gathering import Gathering, Parties
from orchestrator_svc.services.interfaces import CandidateScorer, ContentEncoder, Shard
from orchestrator_svc.services.rerank_client import (
    QueryCandidates,
    RerankClient,
    ShardScores,
)
from tandem.contract.content import Content, Encoding, Modality, Tokens, TruncationPolicy
from tandem.contract.filters import Filter
from tandem.contract.identifiers import MAX_ITEM_ID_BYTES
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.limits import (
    MAX_CONTENT_COUNT,
    MAX_EMBEDDING_COUNT,
    MAX_PAIR_COUNT,
    MAX_SCORE_QUERY_COUNT,
)
from tandem.contract.model_description import ModelDescription
from tandem.errors import TandemError

# Of a message's 64 MiB.
_MAX_ANSWER_BYTES = 48 * 2**20
# Its similarity, and the lengths of its parts.
_HIT_BYTES = 32

Embeddings: TypeAlias = Sequence[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _EncodeKey:
    purpose: EncodePurpose
    truncation_policy: TruncationPolicy


@dataclass(frozen=True, slots=True)
class _SearchKey:
    index_id: str
    fingerprint: str
    modality: Modality
    retrieve_k: int
    query_modality: Modality
    minimum_sequence: int
    where: Filter | None
    are_embeddings_included: bool
    dimension: int
    """So that an embedding that does not fit the index fails alone."""


@dataclass(frozen=True, slots=True)
class _ScoreKey:
    index_id: str
    fingerprint: str
    model_version: int


@dataclass(frozen=True, slots=True, eq=False)
class _Timed:
    """A request and the time it has."""

    deadline_time: float


@dataclass(frozen=True, slots=True, eq=False)
class _Contents(_Timed):
    contents: Sequence[Content]


@dataclass(frozen=True, slots=True, eq=False)
class _Embeddings(_Timed):
    embeddings: Embeddings
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates(_Timed):
    candidates: QueryCandidates


class JointEncoder(ContentEncoder):
    """Encodes the contents of several searches in one call."""

    def __init__(self, encoder: ContentEncoder, parties: Parties) -> None:
        self._encoder = encoder
        self._gathering = Gathering[_EncodeKey, _Contents, EncodedContents](
            self._encode_all,
            parties,
            size_of=lambda request: len(request.contents),
            most=MAX_CONTENT_COUNT,
        )
        self.close = self._gathering.close

    async def encode(
        self,
        contents: Sequence[Content],
        deadline_time: float,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedContents:
        """Returns what became of these contents, and their part of the cost."""
        return await self._gathering.ask(
            _EncodeKey(purpose, truncation_policy), _Contents(deadline_time, contents)
        )

    async def _encode_all(
        self, key: _EncodeKey, requests: Sequence[_Contents]
    ) -> Sequence[EncodedContents]:
        made = await self._encoder.encode(
            [content for request in requests for content in request.contents],
            _earliest(requests),
            purpose=key.purpose,
            truncation_policy=key.truncation_policy,
        )
        counts = [len(request.contents) for request in requests]
        outcomes = iter(made.outcomes)
        return [
            EncodedContents(
                [next(outcomes) for _ in range(count)],
                made.fingerprint,
                cost,
                made.is_model_unavailable,
                made.model_version,
            )
            for count, cost in zip(counts, divided_cost(made.cost, counts), strict=True)
        ]


class JointShard(Shard):
    """Searches a shard for several searches in one call, where they ask for the same but by another
    query; the rest goes through one by one."""

    def __init__(self, shard: ShardClient, parties: Parties) -> None:
        self._shard = shard
        self._gathering = Gathering[_SearchKey, _Embeddings, ShardHits](
            self._search_all,
            parties,
            size_of=lambda request: request.size,
            most=MAX_EMBEDDING_COUNT,
        )
        self.close = self._gathering.close

    async def search(
        self,
        index_id: str,
        embeddings: Embeddings,
        fingerprint: str,
        modality: Modality,
        retrieve_k: int,
        deadline_time: float,
        *,
        query_modality: Modality,
        minimum_sequence: int = 0,
        where: Filter | None = None,
        are_embeddings_included: bool = False,
    ) -> ShardHits:
        """Returns the items nearest to any of the embeddings, best first."""
        key = _SearchKey(
            index_id,
            fingerprint,
            modality,
            retrieve_k,
            query_modality,
            minimum_sequence,
            where,
            are_embeddings_included,
            len(embeddings[0]),
        )
        size = len(embeddings)
        if are_embeddings_included:
            size *= answer_share(len(embeddings[0]), retrieve_k)
        return await self._gathering.ask(key, _Embeddings(deadline_time, embeddings, size))

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search of the shard was given up after so long."""
        self._shard.note_late(waited_seconds)

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids, whose bytes are taken by `taking`."""
        return await self._shard.get(index_id, item_ids, deadline_time, taking)

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline_time: float
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns stored encodings by item id, and the fingerprint."""
        return await self._shard.get_encodings(index_id, item_ids, deadline_time)

    async def _search_all(
        self, key: _SearchKey, requests: Sequence[_Embeddings]
    ) -> Sequence[ShardHits]:
        return await self._shard.search_each(
            key.index_id,
            [request.embeddings for request in requests],
            key.fingerprint,
            key.modality,
            key.retrieve_k,
            _earliest(requests),
            query_modality=key.query_modality,
            minimum_sequence=key.minimum_sequence,
            where=key.where,
            are_embeddings_included=key.are_embeddings_included,
        )


class JointScorer(CandidateScorer):
    """Scores the candidates of several searches in one call."""

    def __init__(self, scorer: RerankClient, parties: Parties) -> None:
        self._scorer = scorer
        self._gathering = Gathering[_ScoreKey, _Candidates, ShardScores](
            self._score_all,
            parties,
            size_of=lambda request: len(request.candidates.item_ids),
            most=MAX_PAIR_COUNT,
            most_requests=MAX_SCORE_QUERY_COUNT,
        )
        self.close = self._gathering.close

    @property
    def is_refusing(self) -> bool:
        """Whether `score` would be refused at once."""
        return self._scorer.is_refusing

    async def score(
        self,
        index_id: str,
        query: Tokens,
        fingerprint: str,
        item_ids: Sequence[str],
        deadline_time: float,
        model_version: int = 0,
    ) -> ShardScores:
        """Returns the scores, and their part of the cost."""
        return await self._gathering.ask(
            _ScoreKey(index_id, fingerprint, model_version),
            _Candidates(deadline_time, QueryCandidates(query, item_ids)),
        )

    async def describe_model(self, deadline_time: float) -> ModelDescription:
        """Returns what it serves."""
        return await self._scorer.describe_model(deadline_time)

    async def _score_all(
        self, key: _ScoreKey, requests: Sequence[_Candidates]
    ) -> Sequence[ShardScores | TandemError]:
        queries = [request.candidates for request in requests]
        scored, cost, version = await self._scorer.score_each(
            key.index_id, queries, key.fingerprint, _earliest(requests), key.model_version
        )
        costs = divided_cost(cost, [len(query.item_ids) for query in queries])
        return [
            matches if isinstance(matches, TandemError) else ShardScores(matches, share, version)
            for matches, share in zip(scored, costs, strict=True)
        ]


def answer_share(dimension: int, retrieve_k: int) -> int:
    """Returns for how many queries one counts whose hits come with their embeddings.

    So that what 64 such queries are answered fits into a message.
    """
    answer_bytes = retrieve_k * (4 * dimension + MAX_ITEM_ID_BYTES + _HIT_BYTES)
    return math.ceil(answer_bytes * MAX_EMBEDDING_COUNT / _MAX_ANSWER_BYTES)


def divided_cost(cost: InferenceCost, sizes: Sequence[int]) -> list[InferenceCost]:
    """Returns each one's part by its size; the parts add up to the whole."""
    whole = sum(sizes) or 1
    ends = list(accumulate(sizes))

    def seconds(value: float | None, size: int) -> float | None:
        return None if value is None else value * size / whole

    def count(value: int, end: int, size: int) -> int:
        # Differences of rounded sums add up; rounded differences would not.
        return value * end // whole - value * (end - size) // whole

    return [
        InferenceCost(
            pair_count=count(cost.pair_count, end, size),
            token_count=count(cost.token_count, end, size),
            padded_token_count=count(cost.padded_token_count, end, size),
            cache_hit_count=count(cost.cache_hit_count, end, size),
            cache_miss_count=count(cost.cache_miss_count, end, size),
            triton_queue_seconds=seconds(cost.triton_queue_seconds, size),
            triton_compute_seconds=seconds(cost.triton_compute_seconds, size),
        )
        for end, size in zip(ends, sizes, strict=True)
    ]


def _earliest(requests: Sequence[_Timed]) -> float:
    return min(request.deadline_time for request in requests)
