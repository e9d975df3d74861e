"""Evaluates through the served path, as a user's own searches would."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any

from tandem.client import AsyncClient, SearchResult, TruncationPolicy
from tandem.errors import CrossEncoderMissing
from tandem.lab.evaluation.gallery import Direction, EvaluationQuery
from tandem.lab.evaluation.metrics import RECALL_AT, graded_ndcg
from tandem.lab.evaluation.reports.report import BE, Ranking, Report
from tandem.lab.evaluation.reports.served_figures import ServedFigures

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
    result: SearchResult = field(compare=False)
    grades: Mapping[str, int] = field(compare=False)


@dataclass(slots=True)
class AdaptiveDepth:
    """Requests adaptive depth, and counts the pairs that it scores."""

    read_count: int = 0
    asked_count: int = 0
    """Candidates that would be scored without the rule."""

    def __str__(self) -> str:
        share = 100 * self.read_count / max(1, self.asked_count)
        return f"{self.read_count:,} of {self.asked_count:,} pairs read, {share:.1f} %"


async def served_reports(  # noqa: PLR0913
    client: AsyncClient,
    index_ids: Sequence[str],
    directions: Iterable[Direction],
    pool_sizes: Sequence[int],
    about: Mapping[str, Any],
    *,
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    concurrency: int = 8,
    on_answer: OnAnswer = lambda _: None,
    adaptive_depth: AdaptiveDepth | None = None,
) -> list[Report]:
    """Returns a report for each index, which already holds the items.

    Every pool size runs all queries again; 0 searches without the cross-encoder, as do all for an
    index whose model has none. A query's seconds are the median of the client's waiting times. With
    `adaptive_depth` the model's rule ends reranks.
    """
    rankings: list[list[Ranking]] = [[] for _ in index_ids]
    models: list[set[str]] = [set() for _ in index_ids]
    without_cross_encoder: set[str] = set()
    languages: dict[str, Sequence[str]] = {}
    seconds: list[dict[str, dict[str, float]]] = [{} for _ in index_ids]
    for direction in directions:
        name = direction.name
        languages[name] = direction.languages
        found: list[list[Ranking]] = [[] for _ in index_ids]
        for k in sorted(pool_sizes):
            start_time = time.monotonic()
            answered = await answer_ranks(
                client,
                index_ids,
                direction.queries(),
                k,
                concurrency,
                partial(on_answer, name),
                is_depth_adaptive=adaptive_depth is not None,
                truncation_policy=truncation_policy,
                without_cross_encoder=without_cross_encoder,
            )
            passed_seconds = time.monotonic() - start_time
            for number, ranks in enumerate(zip(*answered, strict=True)):
                depth = 0 if index_ids[number] in without_cross_encoder else k
                if adaptive_depth is not None and depth:
                    adaptive_depth.read_count += sum(
                        each.result.rerank.reranked_depth for each in ranks
                    )
                    adaptive_depth.asked_count += depth * len(ranks)
                models[number] |= {each.result.model_fingerprint for each in ranks}
                seconds[number].setdefault(name, {})[f"search_{depth}"] = passed_seconds
                be = _ranking(direction, 0, ranks, is_searched=not depth)
                if found[number] and depth:
                    # The larger pool, with the times of BE alone.
                    first = found[number][0]
                    be = replace(be, query_seconds=first.query_seconds, served=first.served)
                found[number][:1] = [be]
                if depth:
                    found[number].append(_ranking(direction, depth, ranks, is_searched=True))
            if without_cross_encoder.issuperset(index_ids):
                break
        for whole, of_direction in zip(rankings, found, strict=True):
            whole += of_direction
    return [
        Report(
            {**about, "model": ", ".join(sorted(models[number]))}
            | ({"cross-encoder": "none"} if index_id in without_cross_encoder else {}),
            languages,
            tuple(rankings[number]),
            seconds[number],
        )
        for number, index_id in enumerate(index_ids)
    ]


async def answer_ranks(  # noqa: PLR0913
    client: AsyncClient,
    index_ids: Sequence[str],
    queries: Iterable[EvaluationQuery],
    k: int,
    concurrency: int,
    on_answer: Callable[[], None],
    *,
    is_depth_adaptive: bool = False,
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR,
    without_cross_encoder: set[str],
) -> list[list[AnswerRanks]]:
    """Returns each query's ranks in each index, in the order of the queries.

    A query is sent to one index after the other, and the next to the last one first, so that times
    of two are compared under one load. One search gives both orders. An index whose model has no
    cross-encoder is added to `without_cross_encoder` and not asked for it again. Raises the
    TandemError of a search that fails, because a recall over the others would not be comparable.
    """
    free = asyncio.Semaphore(concurrency)
    pool_size = max(k, *RECALL_AT)

    async def search(query: EvaluationQuery, index_id: str) -> AnswerRanks:
        start_time = time.monotonic()
        depth = 0 if index_id in without_cross_encoder else k
        try:
            result = await client.search(
                query.query,
                index_id=index_id,
                target_modality=query.target_modality,
                retrieve_k=pool_size,
                rerank_k=depth or None,
                rerank_disabled=depth == 0,
                return_n=pool_size,
                # A recall over part of the gallery would not be the model's.
                full_coverage_required=True,
                # Nor would the bi-encoder's order be the cross-encoder's.
                rerank_required=depth > 0,
                adaptive_depth=is_depth_adaptive and depth > 0,
                truncation_policy=truncation_policy,
            )
        except CrossEncoderMissing:
            # Only an answer says so, because the model description names no remote one.
            without_cross_encoder.add(index_id)
            return await search(query, index_id)
        return _ranks(result, query, time.monotonic() - start_time)

    async def ask(number: int, query: EvaluationQuery) -> list[AnswerRanks]:
        order = index_ids if number % 2 == 0 else index_ids[::-1]
        try:
            ranks = {index_id: await search(query, index_id) for index_id in order}
        finally:
            free.release()
        on_answer()
        return [ranks[index_id] for index_id in index_ids]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, query in enumerate(queries):
                # Acquired here, so that no query is generated before its turn.
                await free.acquire()
                tasks.append(group.create_task(ask(number, query)))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _ranks(result: SearchResult, query: EvaluationQuery, seconds: float) -> AnswerRanks:
    answers = [item for item in result.items if query.grades.get(item.item_id, 0) > 0]
    outside = (None,) * (sum(grade > 0 for grade in query.grades.values()) - len(answers))
    return AnswerRanks(
        (*sorted(item.retrieve_rank for item in answers), *outside),
        (*sorted(item.final_rank for item in answers), *outside),
        seconds,
        result,
        query.grades,
    )


def _ranking(
    direction: Direction, k: int, answered: Sequence[AnswerRanks], *, is_searched: bool
) -> Ranking:
    """Returns the final order, or BE's for k = 0, with times if it is what was searched for."""
    ranks = [each.final_ranks if k else each.retrieve_ranks for each in answered]
    results, grades = [each.result for each in answered], [each.grades for each in answered]
    seconds = [each.seconds for each in answered]
    return Ranking(
        direction.name,
        f"{BE} + CE {k}" if k else BE,
        k,
        tuple(each[0] for each in ranks),
        statistics.median(seconds) if is_searched else None,
        direction.pictures,
        tuple(each[1:] for each in ranks),
        tuple(_graded_ndcg(each, is_final=k > 0) for each in answered),
        ServedFigures.of(results, grades, seconds) if is_searched else None,
    )


def _graded_ndcg(answered: AnswerRanks, *, is_final: bool) -> float:
    rank = attrgetter("final_rank" if is_final else "retrieve_rank")
    ranked = sorted(answered.result.items, key=rank)
    found = [answered.grades.get(item.item_id, 0) for item in ranked]
    return graded_ndcg(found, answered.grades.values())
