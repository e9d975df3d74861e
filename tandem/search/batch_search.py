"""Answers several queries in shared calls to the downstream services."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.query import SearchQuery
from tandem.errors import TandemError
from tandem.search.calls.batching import BatchedEncoder, BatchedReranker, BatchedShard
from tandem.search.calls.call_batcher import OpenSearches
from tandem.search.contents.content_budget import AnswerBudget
from tandem.search.rerank.adaptive_depth import DepthRules
from tandem.search.rerank.pace import RerankPace
from tandem.search.search import Searcher, SearchServices


class BatchSearcher:
    """Answers several queries at once; one that fails does not fail the others."""

    def __init__(self, services: SearchServices, depth_rules: DepthRules) -> None:
        """Takes the `services` of single searches, and shares all their state but the pace.

        A chunk of a batch takes longer than a chunk of the same size from one search.
        """
        self._services = replace(services, pace=RerankPace(services.settings))
        self._depth_rules = depth_rules

    async def search_each(
        self, queries: Sequence[SearchQuery | TandemError], deadline: Deadline
    ) -> list[SearchResult | TandemError]:
        """Returns each query's answer or error; a query that is an error stays one."""
        running = OpenSearches(sum(not isinstance(query, TandemError) for query in queries))
        async with self._batching(running) as services:
            # One message carries all answers.
            searcher = Searcher(services, self._depth_rules, AnswerBudget())

            async def answer(query: SearchQuery | TandemError) -> SearchResult | TandemError:
                if isinstance(query, TandemError):
                    return query
                try:
                    return await searcher.search(query, deadline)
                except TandemError as error:
                    return error.kept()
                finally:
                    running.count -= 1

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(answer(query)) for query in queries]
        return [task.result() for task in tasks]

    @asynccontextmanager
    async def _batching(self, running: OpenSearches) -> AsyncIterator[SearchServices]:
        """Yields services that batch their calls; cancels the calls in flight at the end."""
        encoder = BatchedEncoder(self._services.encoder, running)
        shards = [BatchedShard(each, running) for each in self._services.shards]
        scorers = [BatchedReranker(each, running) for each in self._services.scorers]
        try:
            yield replace(self._services, encoder=encoder, shards=shards, scorers=scorers)
        finally:
            await encoder.close()
            for shard, scorer in zip(shards, scorers, strict=True):
                await shard.close()
                await scorer.close()
