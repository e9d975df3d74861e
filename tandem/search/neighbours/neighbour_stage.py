"""The third stage: has a neighbour model score the first items by their neighbours."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.model_description import NeighbourModelDescription
from tandem.contract.search.answer_names import NeighbourStopReason, OrderedBy
from tandem.contract.search.query import SearchQuery
from tandem.errors import (
    DeadlineExceeded,
    IndexNotFound,
    ModelMismatch,
    ModelOutputInvalid,
    NeighbourModelMissing,
    Overloaded,
    ServiceUnavailable,
    TandemError,
)
from tandem.search.calls.fan_out import answer_or_error
from tandem.search.calls.guarded import GuardedReranker
from tandem.search.metrics import note_neighbours
from tandem.search.neighbours.joined_neighbours import are_nearest, joined_graph
from tandem.search.neighbours.outcome import NeighbourOutcome
from tandem.search.neighbours.served_model import ServedNeighbourModels
from tandem.stages.hit import Hit
from tandem.stages.neighbours import (
    Graph,
    GraphScores,
    ModalityNeighbours,
    ShardNeighbourQuery,
    ShardNeighbours,
)
from tandem.stages.reranking import Match
from tandem.stages.shard import Shard
from tandem.stages.stage import OrderedHits, StageOutcome

# Of the stage's time, how long to wait for late shards; the network needs the rest.
_FIND_SHARE = 0.6

_STOP_OF_ERROR: Mapping[type[TandemError], NeighbourStopReason] = {
    DeadlineExceeded: NeighbourStopReason.TIME,
    Overloaded: NeighbourStopReason.OVERLOADED,
    ModelOutputInvalid: NeighbourStopReason.OUTPUT_INVALID,
    ModelMismatch: NeighbourStopReason.MODEL_MISMATCH,
    NeighbourModelMissing: NeighbourStopReason.NOT_SERVED,
}
"""Any other error is UNAVAILABLE: retrieval has just answered the same query."""


class NeighbourStage:
    """Asks the shards for neighbours, and a rerank_svc for scores, where a search asks for it."""

    name = "neighbours"
    score_name = "neighbour_score"
    ordered_by = OrderedBy.NEIGHBOURS

    def __init__(
        self,
        finders: Sequence[Shard],
        scorers: Sequence[GuardedReranker],
        pool_count: int = 512,
        time_share: float = 0.2,
    ) -> None:
        """Takes finders by shard number; any scorer can score any graph."""
        self.time_share = time_share
        self._finders = finders
        self._scorers = scorers
        self._pool_count = pool_count
        self._models = ServedNeighbourModels(scorers)
        self._turns = itertools.count()

    def is_asked(self, query: SearchQuery) -> bool:
        """Returns `neighbours_enabled`."""
        return query.neighbours_enabled

    async def score(
        self, query: SearchQuery, ordered: OrderedHits, deadline: Deadline
    ) -> StageOutcome:
        """Scores the first hits of the modality that the query does not have.

        The summary names a failure; raises if the query requires all neighbours and some are
        missing.
        """
        outcome = await self._outcome(query, ordered, deadline)
        note_neighbours(outcome.stop)
        if query.neighbours_required:
            outcome.check_complete()
        return outcome.as_stage

    async def _outcome(
        self, asked: SearchQuery, ordered: OrderedHits, deadline: Deadline
    ) -> NeighbourOutcome:
        found_hits = ordered.hits.get(ordered.query_modality.other, ())
        if len(ordered.embeddings) != 1 or not found_hits:
            return NeighbourOutcome(NeighbourStopReason.NOT_APPLICABLE)
        try:
            model = await self._models.model(deadline)
        except TandemError as error:
            return NeighbourOutcome(
                _STOP_OF_ERROR.get(type(error), NeighbourStopReason.UNAVAILABLE)
            )
        if model is None:
            return NeighbourOutcome(NeighbourStopReason.NOT_SERVED)
        if model.base_fingerprint != ordered.fingerprint:
            return NeighbourOutcome(NeighbourStopReason.MODEL_MISMATCH)
        pool_KD = _reranked_pool(found_hits, ordered.matches, model.rerank_k)
        if pool_KD is None and model.rerank_k:
            scored_count = sum(hit.item_id in ordered.matches for hit in found_hits)
            is_its_rerank = asked.depth.rerank_k == model.rerank_k and not (
                asked.rerank_disabled or asked.adaptive_depth
            )
            is_cut_short = is_its_rerank and scored_count < model.rerank_k <= len(found_hits)
            needed_k = 0 if is_cut_short else model.rerank_k
            return NeighbourOutcome(NeighbourStopReason.RERANK_MISMATCH, needed_rerank_k=needed_k)
        hits = found_hits[: model.item_count(ordered.query_modality)]
        # Over a rerank the neighbours of the query are the first of the pool, by their own numbers.
        near_count = model.neighbour_count if model.neighbour_count < model.rerank_k else 0
        asked_hits = found_hits[: max(len(hits), near_count)]
        nodes_VD = np.stack([ordered.embeddings[0], *map(_embedding, asked_hits)])
        query = self._neighbour_query(ordered, nodes_VD, model)
        found, missing = await self._find(query, deadline)
        if not found:
            return NeighbourOutcome(_stop_of(missing), missing=missing)
        item_modality = ordered.query_modality.other
        if pool_KD is not None and not are_nearest(found, pool_KD, nodes_VD[0], item_modality):
            stop, needed_k = NeighbourStopReason.RERANK_MISMATCH, model.rerank_k
            return NeighbourOutcome(stop, missing=missing, needed_rerank_k=needed_k)
        try:
            graph = joined_graph(
                found, nodes_VD, ordered.query_modality, ordered.fingerprint, model, pool_KD
            )
            if graph is None:
                return NeighbourOutcome(NeighbourStopReason.TOO_FEW_ITEMS, missing=missing)
            scored = await self._score(graph, deadline)
        except TandemError as error:
            # The service may have another model by now than the one that it described.
            self._models.forget()
            stop = _STOP_OF_ERROR.get(type(error), NeighbourStopReason.UNAVAILABLE)
            return NeighbourOutcome(stop, missing=missing)
        scores = {hit.item_id: score for hit, score in zip(hits, scored.scores, strict=True)}
        return NeighbourOutcome(
            NeighbourStopReason.COMPLETE, scores, scored.neighbour_model, missing, scored.cost
        )

    def _neighbour_query(
        self, ordered: OrderedHits, nodes_VD: np.ndarray, model: NeighbourModelDescription
    ) -> ShardNeighbourQuery:
        # One more, since the first may be the query itself, which the model may leave out.
        pillar_k = max(model.pillar_count, model.rerank_k) + 1
        # One more over a rerank, whose similarities may put the query behind that neighbour.
        neighbour_k = model.neighbour_count + (model.rerank_k > 0)
        return ShardNeighbourQuery(
            ordered.index_id,
            ordered.fingerprint,
            nodes_VD,
            max(self._pool_count, pillar_k, neighbour_k),
            pillar_k,
            neighbour_k,
        )

    async def _find(
        self, query: ShardNeighbourQuery, deadline: Deadline
    ) -> tuple[Mapping[int, ShardNeighbours], Mapping[int, TandemError]]:
        """Returns the shards' neighbours, and why others gave none, by shard number."""
        find_end = Deadline.after(_FIND_SHARE * deadline.left())
        answers = await asyncio.gather(
            *(_found(finder, query, find_end) for finder in self._finders)
        )
        found = {n: each for n, each in enumerate(answers) if not isinstance(each, TandemError)}
        missing = {n: each for n, each in enumerate(answers) if isinstance(each, TandemError)}
        return found, missing

    async def _score(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Has one rerank_svc score the graph, the next one if it fails; raises the last error."""
        error: TandemError = ServiceUnavailable(
            service="graph", why="the circuit breakers of all rerank services are open"
        )
        first, count = next(self._turns), len(self._scorers)
        for turn in range(first, first + count):
            scorer = self._scorers[turn % count]
            if scorer.is_refusing_graphs:
                continue
            try:
                return await scorer.score_graph(graph, deadline)
            except TandemError as failure:
                error = failure
        raise error


async def _found(
    finder: Shard, query: ShardNeighbourQuery, deadline: Deadline
) -> ShardNeighbours | TandemError:
    """Returns the shard's neighbours or its error; no neighbours if it does not know the index."""
    answer = await answer_or_error(finder.find_neighbours(query, deadline), TandemError)
    if not isinstance(answer, IndexNotFound):
        return answer
    node_count, dimension = query.nodes.shape
    nothing = ModalityNeighbours(
        np.zeros((0, dimension), np.float32),
        np.zeros((node_count, 0), np.int64),
        np.zeros((node_count, 0), np.float32),
    )
    return dict.fromkeys(Modality, nothing)


def _stop_of(missing: Mapping[int, TandemError]) -> NeighbourStopReason:
    """Returns the stop if no shard answered: the one that all errors give, else UNAVAILABLE."""
    stops = {_STOP_OF_ERROR.get(type(e), NeighbourStopReason.UNAVAILABLE) for e in missing.values()}
    return stops.pop() if len(stops) == 1 else NeighbourStopReason.UNAVAILABLE


def _reranked_pool(
    hits: Sequence[Hit], matches: Mapping[str, Match], rerank_k: int
) -> np.ndarray | None:
    """Returns the embeddings of the first `rerank_k` hits; None unless these were the reranked.

    They must be in the order of their logits alone: a fused order is another one.
    """
    scored = [matches[hit.item_id].logit for hit in hits if hit.item_id in matches]
    pool = hits[:rerank_k]
    if not pool or len(scored) != rerank_k or any(hit.item_id not in matches for hit in pool):
        return None
    is_in_order = scored == sorted(scored, reverse=True)
    return np.stack([_embedding(hit) for hit in pool]) if is_in_order else None


def _embedding(hit: Hit) -> np.ndarray:
    assert hit.embedding is not None, "a search by neighbours retrieves with embeddings"
    return hit.embedding
