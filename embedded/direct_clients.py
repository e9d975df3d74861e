"""Calls the services of this process without messages, for what a search of one query needs.

Each class is the service's client, whose breaker, retry and checks of answers stay. Its other
calls remain messages over a `LocalChannel`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import grpc

from embedded.local_server import LocalCall, LocalChannel
from encoder_svc.servicer import EncoderServicer
from index_svc.servicer import IndexServicer
from orchestrator_svc.assembly import Clients, breaker_rule
from orchestrator_svc.settings import OrchestratorSettings
from rerank_svc.servicer import RerankServicer
from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.deadline import Deadline
from tandem.contract.limits import MAX_CONTENT_COUNT
from tandem.errors import ModelOutputInvalid
from tandem.remote.encoder_client import EncoderClient
from tandem.remote.rerank_client import RerankClient
from tandem.remote.shard_client import ShardClient
from tandem.search.calls.breaker import BreakerRule
from tandem.search.calls.retry_budget import RetryBudget
from tandem.stages.encoding import EncodedBatch, EncodePurpose
from tandem.stages.reranking import Candidates, ScoredBatch, ScoreQuery
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard_answer import ShardAnswer

T = TypeVar("T")
Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class CallableRoom:
    """Pairs the channel to all methods of a service with its servicer, if that is here."""

    channel: LocalChannel | grpc.aio.Channel
    servicer: object = None


@dataclass(frozen=True, slots=True)
class DirectRoom(Generic[T]):
    """A room whose servicer is of a known type and in this process."""

    channel: LocalChannel
    servicer: T


def direct_clients(
    settings: OrchestratorSettings,
    encoder: CallableRoom,
    shards: Sequence[tuple[CallableRoom, CallableRoom]],
) -> Clients:
    """Returns clients of the rooms, those of the shards in the shards' order.

    A room elsewhere, and a damaged shard, is only called with messages.
    """
    rule, budget = breaker_rule(settings), RetryBudget(settings.retry_share)
    here = _here(encoder, EncoderServicer)
    clients = [
        _shard_client(index, rerank, number, settings.shard_map_version, (budget, rule))
        for number, (index, rerank) in enumerate(shards)
    ]
    if here is None:
        return Clients(EncoderClient(encoder.channel, budget, rule), clients)
    return Clients(DirectEncoderClient(here, budget, rule), clients)


def _shard_client(
    index: CallableRoom,
    rerank: CallableRoom,
    number: int,
    shard_map_version: int,
    policy: tuple[RetryBudget, BreakerRule],
) -> ShardClient:
    shard_here, reranker_here = _here(index, IndexServicer), _here(rerank, RerankServicer)
    shard = (
        ShardClient(index.channel, rerank.channel, number, shard_map_version, *policy)
        if shard_here is None
        else DirectShardClient(shard_here, rerank.channel, number, shard_map_version, policy)
    )
    if reranker_here is not None:
        shard.reranker = DirectRerankClient(reranker_here, number, *policy)
    return shard


def _here(room: CallableRoom, kind: type[T]) -> DirectRoom[T] | None:
    if isinstance(room.channel, LocalChannel) and isinstance(room.servicer, kind):
        return DirectRoom(room.channel, room.servicer)
    return None


class DirectEncoderClient(EncoderClient):
    """Calls the encoder's room."""

    def __init__(
        self, room: DirectRoom[EncoderServicer], retry_budget: RetryBudget, rule: BreakerRule
    ) -> None:
        super().__init__(room.channel, retry_budget, rule)
        self._room = room

    async def encode(
        self,
        contents: Sequence[Content],
        deadline: Deadline,
        *,
        purpose: EncodePurpose = EncodePurpose.INGEST,
        truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> EncodedBatch:
        """Returns each content's encoding or error, from one call."""
        is_query = purpose is EncodePurpose.QUERY
        if not (is_query and 1 <= len(contents) <= MAX_CONTENT_COUNT):
            return await super().encode(
                contents, deadline, purpose=purpose, truncation_policy=truncation_policy
            )

        def encode(given: Sequence[Content], seconds: float) -> Awaitable[EncodedBatch]:
            return self._room.servicer.encode(given, seconds, truncation_policy, is_query=True)

        return await self._dependency.call(
            _called(self._room.channel, "EncodeContents", encode), contents, deadline
        )


class DirectRerankClient(RerankClient):
    """Calls a shard's reranker."""

    def __init__(
        self,
        room: DirectRoom[RerankServicer],
        number: int,
        retry_budget: RetryBudget,
        rule: BreakerRule,
    ) -> None:
        super().__init__(room.channel, number, retry_budget, rule)
        self._room = room

    async def _score(
        self, query: ScoreQuery, candidates: Candidates, deadline: Deadline
    ) -> ScoredBatch:
        async def score(given: Candidates, seconds: float) -> ScoredBatch:
            return await self._room.servicer.score(
                query.index_id, query.fingerprint, [given], seconds, query.model_version
            )

        return await self._dependency.call(
            _called(self._room.channel, "ScoreCandidates", score),
            candidates,
            deadline,
            self._checked_batch,
        )

    def _checked_batch(self, batch: ScoredBatch) -> ScoredBatch:
        for match in batch.matches.values():
            if not (math.isfinite(match.logit) and 0.0 <= (match.probability or 0.0) <= 1.0):
                raise ModelOutputInvalid(model=self._name, why="a score is not a number")
        return batch


class DirectShardClient(ShardClient):
    """Calls a shard."""

    def __init__(
        self,
        room: DirectRoom[IndexServicer],
        rerank_channel: LocalChannel | grpc.aio.Channel,
        number: int,
        shard_map_version: int,
        policy: tuple[RetryBudget, BreakerRule],
    ) -> None:
        super().__init__(room.channel, rerank_channel, number, shard_map_version, *policy)
        self._room = room

    async def _search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        return await self._dependency.call(
            _called(self._room.channel, "SearchEmbeddings", self._searched), query, deadline
        )

    async def _searched(self, query: ShardQuery, seconds: float) -> ShardAnswer:
        answer, _ = await self._room.servicer.search(
            query, LocalCall(seconds), self._shard_map_version
        )
        return answer


def _called(
    channel: LocalChannel, name: str, serve: Callable[[Request, float], Awaitable[Response]]
) -> Callable[..., Awaitable[Response]]:
    """Returns what calls `serve` with a request and the seconds, as a stub calls a method."""

    async def answer(
        request: Request,
        *,
        timeout: float,  # noqa: ASYNC109 (gRPC names the arguments)
        **_: object,
    ) -> Response:
        return await channel.run(name, lambda _: serve(request, timeout), timeout)

    return answer
