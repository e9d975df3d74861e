"""Evaluates through the served path, as a user's own searches would."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tandem.client import AsyncClient, SearchResult, TruncationPolicy
from tandem.lab.evaluation.gallery import DIRECTIONS, EvaluationQuery, Gallery
from tandem.lab.evaluation.metrics import RECALL_AT
from tandem.lab.evaluation.reports.report import BE, Ranking, Report

# Items that the cross-encoder reranks: the k of Geigle et al. 2022, section 6.
POOL_K = 20

# Called with the direction after each answer.
OnAnswer = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class AnswerRanks:
    """Holds the ranks of one query's answers, from 1, ascending; None for one outside the pool."""

    retrieve_ranks: tuple[int | None, ...]
    final_ranks: tuple[int | None, ...]
    seconds: float = field(compare=False)
    """Duration of the search as the client saw it."""
    reranked_depth: int = field(default=0, compare=False)
    model_fingerprint: str = field(default="", compare=False)


@dataclass(slots=True)
class AdaptiveDepth:
    """Requests adaptive depth, and counts the pairs that it scores."""

    read_count: int = 0
    asked_count: int = 0
    """Candidates that would be scored without the rule."""

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
    """Returns the report of a gallery that is already in the index.

    Every pool size runs all queries again; 0 searches without the cross-encoder. `query_count`
    limits the queries of each direction, spread over the gallery. A query's seconds are the median
    of the client's waiting times. With `adaptive_depth` the model's rule ends reranks.
    """
    rankings: list[Ranking] = []
    languages: dict[str, Sequence[str]] = {}
    seconds: dict[str, dict[str, float]] = {}
    models: set[str] = set()
    for name, target in DIRECTIONS.items():
        every = gallery.languages(target)
        query_numbers = gallery.query_numbers(target, query_count)
        languages[name] = [every[number] for number in query_numbers]
        whole = gallery.query_pictures(target)
        pictures = tuple(whole[number] for number in query_numbers if whole)
        seconds[name] = {}
        reranked = []
        be_seconds = None
        for k in sorted(pool_sizes):
            # Generated again for each k, one by one, because a picture query reads its picture.
            queries = gallery.queries(target, query_numbers)
            start_time = time.monotonic()
            ranks = await answer_ranks(
                client,
                index_id,
                queries,
                k,
                concurrency,
                partial(on_answer, name),
                is_depth_adaptive=adaptive_depth is not None,
                truncation_policy=gallery.truncation_policy,
            )
            if adaptive_depth is not None:
                adaptive_depth.read_count += sum(each.reranked_depth for each in ranks)
                adaptive_depth.asked_count += k * len(ranks)
            models |= {each.model_fingerprint for each in ranks}
            seconds[name][f"search_{k}"] = time.monotonic() - start_time
            median_seconds = statistics.median(each.seconds for each in ranks)
            if k == 0:
                be_seconds = median_seconds
            else:
                final = [each.final_ranks for each in ranks]
                order_by = f"{BE} + CE {k}"
                reranked.append(_ranking(name, order_by, k, final, median_seconds, pictures))
        retrieved = [each.retrieve_ranks for each in ranks]
        rankings += [_ranking(name, BE, 0, retrieved, be_seconds, pictures), *reranked]
    about = {**about, "model": ", ".join(sorted(models))}
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
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
) -> list[AnswerRanks]:
    """Returns each query's ranks, in the order of the queries.

    One search gives both orders. Raises the TandemError of a search that fails, because a recall
    over the others would not be comparable.
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
                rerank_k=k or None,
                rerank_disabled=k == 0,
                return_n=pool_size,
                # A recall over part of the gallery would not be the model's.
                full_coverage_required=True,
                # Nor would the bi-encoder's order be the cross-encoder's.
                rerank_required=k > 0,
                adaptive_depth=is_depth_adaptive and k > 0,
                truncation_policy=truncation_policy,
            )
        finally:
            free.release()
        on_answer()
        return _ranks(result, query, time.monotonic() - start_time)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for query in queries:
                # Acquired here, so that no query is generated before its turn.
                await free.acquire()
                tasks.append(group.create_task(ask(query)))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _ranks(result: SearchResult, query: EvaluationQuery, seconds: float) -> AnswerRanks:
    answers = [item for item in result.items if item.item_id in query.answer_ids]
    outside = (None,) * (len(query.answer_ids) - len(answers))
    return AnswerRanks(
        (*sorted(item.retrieve_rank for item in answers), *outside),
        (*sorted(item.final_rank for item in answers), *outside),
        seconds,
        result.rerank.reranked_depth,
        result.model_fingerprint,
    )


def _ranking(
    direction: str,
    order_by: str,
    k: int,
    ranks: Sequence[tuple[int | None, ...]],
    seconds: float | None,
    pictures: tuple[int, ...],
) -> Ranking:
    best, further = tuple(each[0] for each in ranks), tuple(each[1:] for each in ranks)
    return Ranking(direction, order_by, k, best, seconds, pictures, further)
