"""Evaluation through the served path: what a user's own searches would find."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tandem.client import AsyncClient, SearchResult
from tandem.evaluation.gallery import EvaluationQuery
from tandem.evaluation.metrics import Recall, recall_at

RECALL_AT = (1, 5, 10)

# The pool that the cross-encoder reorders: the paper's k (Geigle et al. 2022, section 6).
POOL_K = 20


@dataclass(frozen=True, slots=True)
class AnswerRanks:
    """Where one query's answer stood, from 1; None is outside the pool."""

    retrieve_rank: int | None
    final_rank: int | None
    language: str


@dataclass(frozen=True, slots=True)
class DirectionReport:
    """R@1, R@5 and R@10 of one direction, by the bi-encoder's order and by the final one."""

    retrieved: tuple[Recall, ...]
    reranked: tuple[Recall, ...]


async def answer_ranks(
    client: AsyncClient,
    index_id: str,
    queries: Iterable[EvaluationQuery],
    concurrency: int,
    on_answer: Callable[[], None],
) -> list[AnswerRanks]:
    """Returns each query's ranks, in the order of the queries.

    One search gives both orders: retrieval alone, and reranking of the pool. Raises the TandemError
    of a search that fails: a recall over the others would be of another set.
    """
    free = asyncio.Semaphore(concurrency)

    async def ask(query: EvaluationQuery) -> AnswerRanks:
        try:
            result = await client.search(
                query.query,
                index_id=index_id,
                target_modality=query.target_modality,
                retrieve_k=POOL_K,
                rerank_k=POOL_K,
                return_n=POOL_K,
            )
        finally:
            free.release()
        on_answer()
        return _ranks(result, query)

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


def report(ranks: Iterable[AnswerRanks]) -> DirectionReport:
    """Returns the recalls over these queries."""
    ranks = list(ranks)
    retrieved = [each.retrieve_rank for each in ranks]
    reranked = [each.final_rank for each in ranks]
    return DirectionReport(
        tuple(recall_at(retrieved, k) for k in RECALL_AT),
        tuple(recall_at(reranked, k) for k in RECALL_AT),
    )


def _ranks(result: SearchResult, query: EvaluationQuery) -> AnswerRanks:
    for item in result.items:
        if item.item_id == query.answer_id:
            return AnswerRanks(item.retrieve_rank, item.final_rank, query.language)
    return AnswerRanks(None, None, query.language)
