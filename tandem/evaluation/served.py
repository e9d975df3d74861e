"""Evaluation through the served path: what a user's own searches would find."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tandem.client import AsyncClient, SearchResult
from tandem.evaluation.gallery import DIRECTIONS, EvaluationQuery, Gallery
from tandem.evaluation.metrics import RECALL_AT
from tandem.evaluation.report import BE, Ranking, Report

# The pool that the cross-encoder reorders: the paper's k (Geigle et al. 2022, section 6).
POOL_K = 20

# Called with the direction after each of its answers.
OnAnswer = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AnswerRanks:
    """Where one query's best-placed answer stood, from 1; None is outside the pool."""

    retrieve_rank: int | None
    final_rank: int | None
    seconds: float = field(compare=False)
    """Of the whole search, as its asker waited."""
    reranked_depth: int = field(default=0, compare=False)
    """Candidates that the cross-encoder read."""


@dataclass(slots=True)
class AdaptiveDepth:
    """Asks searches to rerank as far as the model's rule finds worth it, and counts how far."""

    read_count: int = 0
    """Candidates that were read."""
    asked_count: int = 0
    """Candidates that would have been without the rule."""

    def __str__(self) -> str:
        share = 100 * self.read_count / max(1, self.asked_count)
        return f"{self.read_count:,} of {self.asked_count:,} pairs read, {share:.1f} %"


async def served_report(  # noqa: PLR0913
    client: AsyncClient,
    index_id: str,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    about: Mapping[str, Any],
    *,
    query_count: int | None = None,
    concurrency: int = 8,
    on_answer: OnAnswer = lambda _: None,
    adaptive_depth: AdaptiveDepth | None = None,
) -> Report:
    """Returns the report of a gallery that is in the index already.

    Every pool size asks all queries anew; 0 is a search without the cross-encoder. `query_count`
    takes so many of each direction, spread over the gallery. A query's seconds are the median of
    what its asker waited, `concurrency` of them at once. With `adaptive_depth` reranks end where
    the model's rule ends them, and what they read is counted in it. Errors as answer_ranks.
    """
    rankings: list[Ranking] = []
    languages: dict[str, Sequence[str]] = {}
    seconds: dict[str, dict[str, float]] = {}
    for name, target in DIRECTIONS.items():
        every = gallery.languages(target)
        asked = gallery.asked(target, query_count)
        languages[name] = [every[number] for number in asked]
        whole = gallery.query_pictures(target)
        pictures = tuple(whole[number] for number in asked if whole)
        seconds[name] = {}
        reranked = []
        be_seconds = None
        for k in sorted(pool_sizes):
            # Drawn anew for each k, and one by one: a picture query reads its picture.
            queries = gallery.queries(target, asked)
            start_time = time.monotonic()
            ranks = await answer_ranks(
                client,
                index_id,
                queries,
                k,
                concurrency,
                partial(on_answer, name),
                is_depth_adaptive=adaptive_depth is not None,
            )
            if adaptive_depth is not None:
                adaptive_depth.read_count += sum(each.reranked_depth for each in ranks)
                adaptive_depth.asked_count += k * len(ranks)
            seconds[name][f"search_{k}"] = time.monotonic() - start_time
            median_seconds = statistics.median(each.seconds for each in ranks)
            if k == 0:
                be_seconds = median_seconds
            else:
                final = tuple(each.final_rank for each in ranks)
                order_by = f"{BE} + CE {k}"
                reranked.append(Ranking(name, order_by, k, final, median_seconds, pictures))
        retrieved = tuple(each.retrieve_rank for each in ranks)
        rankings += [Ranking(name, BE, 0, retrieved, be_seconds, pictures), *reranked]
    return Report(about, languages, tuple(rankings), seconds)


async def answer_ranks(
    client: AsyncClient,
    index_id: str,
    queries: Iterable[EvaluationQuery],
    k: int,
    concurrency: int,
    on_answer: Callable[[], None],
    *,
    is_depth_adaptive: bool = False,
) -> list[AnswerRanks]:
    """Returns each query's ranks, in the order of the queries.

    One search gives both orders: retrieval alone, and reranking of the best `k`. Raises the
    TandemError of a search that fails: a recall over the others would be of another set.
    """
    free = asyncio.Semaphore(concurrency)
    pool_size = max(k, *RECALL_AT)

    async def ask(query: EvaluationQuery) -> AnswerRanks:
        start_time = time.monotonic()
        try:
            result = await client.search(
                query.query,
                index_id=index_id,
                target_modality=query.target_modality,
                retrieve_k=pool_size,
                rerank_k=k,
                return_n=pool_size,
                # A recall over part of the gallery would be no recall of the model's.
                full_coverage_required=True,
                # And the bi-encoder's order for the cross-encoder's, no recall of that one's.
                rerank_required=True,
                adaptive_depth=is_depth_adaptive,
            )
        finally:
            free.release()
        on_answer()
        return _ranks(result, query, time.monotonic() - start_time)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for query in queries:
                # Taken here, so that no query is drawn before its turn.
                await free.acquire()
                tasks.append(group.create_task(ask(query)))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _ranks(result: SearchResult, query: EvaluationQuery, seconds: float) -> AnswerRanks:
    answers = [item for item in result.items if item.item_id in query.answer_ids]
    return AnswerRanks(
        min((item.retrieve_rank for item in answers), default=None),
        min((item.final_rank for item in answers), default=None),
        seconds,
        result.rerank.reranked_depth,
    )
