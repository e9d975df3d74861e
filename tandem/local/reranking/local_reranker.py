"""Scores in this process."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tandem.contract.deadline import Deadline
from tandem.contract.limits import (
    MAX_PAIR_COUNT,
    MAX_SCORE_QUERY_COUNT,
    check_batch_size,
)
from tandem.contract.model_description import ModelDescription
from tandem.errors import ModelMismatch, NeighbourModelMissing, TandemError
from tandem.local.reranking.metrics import count_cost, observe_stage
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.served_neighbour_model import ServedNeighbourModel
from tandem.stages.neighbours import Graph, GraphScores
from tandem.stages.reranking import (
    Candidates,
    GivenCandidates,
    Match,
    Reranker,
    ScoredBatch,
    ScoreQuery,
)

if TYPE_CHECKING:  # it needs an HTTP client, an extra
    from tandem.local.reranking.remote.remote_reranker import HttpReranker


class LocalReranker(Reranker):
    """Scores candidates with a cross-encoder, and graphs with a neighbour model."""

    def __init__(
        self,
        scorer: "ModelReranker | HttpReranker",
        describe: Callable[[], ModelDescription],
        neighbour_model: ServedNeighbourModel | None = None,
    ) -> None:
        """Scores graphs only if there is a `neighbour_model`."""
        self._scorer = scorer
        self._neighbour_model = neighbour_model
        self._describe = describe

    async def score(
        self,
        query: ScoreQuery,
        requests: Sequence[Candidates | TandemError],
        deadline: Deadline,
    ) -> ScoredBatch:
        """Returns each request's scores or error; an input that is an error stays one."""
        check_batch_size("queries", len(requests), MAX_SCORE_QUERY_COUNT)
        pair_count = sum(len(e.item_ids) for e in requests if isinstance(e, Candidates))
        if pair_count > MAX_PAIR_COUNT:
            check_batch_size("item_ids of all queries together", pair_count, MAX_PAIR_COUNT)
        async with deadline.kept("the call of ScoreCandidates"):
            scored = await self._scorer.score(query, requests, deadline)
        observe_stage("read", scored.read_seconds)
        observe_stage("inference", scored.inference_seconds)
        return scored

    async def score_given(
        self, given: GivenCandidates, deadline: Deadline
    ) -> tuple[Sequence[Match], ScoredBatch]:
        """Returns the scores of candidates that are not stored."""
        async with deadline.kept("the call of ScoreTokens"):
            matches, scored = await self._scorer.score_given(given, deadline)
        observe_stage("inference", scored.inference_seconds)
        return matches, scored

    async def score_graph(self, graph: Graph, deadline: Deadline) -> GraphScores:
        """Returns the scores of the graph's items.

        Raises ModelMismatch for embeddings that the neighbour model was not trained over, and
        RequestMalformed for a graph that it does not read.
        """
        if self._neighbour_model is None:
            raise NeighbourModelMissing
        base = self._neighbour_model.manifest.base_fingerprint
        if graph.fingerprint != base:
            raise ModelMismatch(request=graph.fingerprint, index=base)
        start_time = time.perf_counter()
        async with deadline.kept("the call of ScoreGraph"):
            scored = await self._neighbour_model.score(graph, deadline.left())
        count_cost(scored.cost)
        observe_stage("graph", time.perf_counter() - start_time)
        return scored

    async def describe_model(self, deadline: Deadline) -> ModelDescription:
        """Returns the description of the model that is served."""
        return self._describe()
