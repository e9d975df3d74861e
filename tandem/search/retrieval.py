"""Retrieves the nearest items from all shards, or from enough of them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tandem.contract.content import Modality
from tandem.contract.deadline import Deadline
from tandem.contract.search.query import HybridRule
from tandem.contract.search_path import ShardRetrieval
from tandem.errors import DeadlineExceeded, IndexNotFound, TandemError
from tandem.search.calls.fan_out import answer_or_error
from tandem.search.coverage import (
    MISSING_ERRORS,
    CoverageDemand,
    LastItemCounts,
    SearchCoverage,
    refusal_of,
)
from tandem.search.metrics import note_coverage
from tandem.search.ranking.hybrid_fusion import fused_hits
from tandem.search.settings import SearchSettings
from tandem.stages.hit import Hit, merge_hits, merge_keyword_hits
from tandem.stages.retrieval import ShardHits, ShardQuery
from tandem.stages.shard_answer import ShardAnswer, hits_of


@dataclass(frozen=True, slots=True, eq=False)
class Retrieval:
    """Describes what to retrieve from all shards, and how many of them must answer."""

    query: ShardQuery
    """The query of every shard, without its minimum sequence."""
    minimum_sequences: Mapping[int, int]
    """By shard number, what its change log must have reached; these shards may not be missing."""
    full_coverage_required: bool
    hybrid: HybridRule | None = None
    """How to fuse what the query's words find; None if it has none."""


class SearchedShard(Protocol):
    """A shard that is searched, alone or for several searches at once."""

    async def search(self, query: ShardQuery, deadline: Deadline) -> ShardAnswer:
        """Returns the nearest items to each of the query's embeddings."""

    def note_late(self, waited_seconds: float) -> None:
        """Notes that a search was abandoned after that time."""


class Retriever:
    """Asks every shard, and stops waiting for late ones while later stages still have time."""

    def __init__(
        self,
        shards: Sequence[SearchedShard],
        settings: SearchSettings,
        counts: LastItemCounts | None = None,
    ) -> None:
        """Waits for late shards only as long as the settings say, if the others cover enough.

        Retrievers over the same shards can share `counts`.
        """
        self._shards = shards
        self._settings = settings
        self._counts = counts or LastItemCounts()

    async def retrieve(
        self, retrieval: Retrieval, deadline: Deadline
    ) -> tuple[list[Hit], SearchCoverage]:
        """Returns the nearest items, best first, and the coverage.

        Raises ShardsMissing if the coverage is too low, DeadlineExceeded if no shard answered in
        time, IndexNotFound if no shard knows the index, and any error of a shard that does not
        merely make it missing.
        """
        demand = CoverageDemand(
            self._settings.minimum_coverage,
            range(len(self._shards))
            if retrieval.full_coverage_required
            else retrieval.minimum_sequences.keys(),
        )
        answers = await self._ask(retrieval, demand, deadline)
        coverage = self._coverage(retrieval, answers)
        is_enough = answers.are_enough(coverage, demand)
        note_coverage(coverage, is_answered=is_enough)
        if not is_enough:
            raise refusal_of(
                coverage, "the retrieval", is_demanded=demand.is_lost_with(coverage.missing)
            )
        if answers.is_index_unknown():
            raise IndexNotFound(index_id=retrieval.query.index_id)
        self._counts.note(retrieval.query.index_id, retrieval.query.modality, answers.item_counts())
        count = retrieval.query.retrieve_k
        found = [hits for hits in answers.hits.values() if hits]
        nearest = merge_hits((hits.hits for hits in found), count)
        if retrieval.hybrid is None:
            return nearest, coverage
        worded = merge_keyword_hits((hits.keyword_hits for hits in found), count)
        return fused_hits(nearest, worded, retrieval.hybrid, count), coverage

    async def _ask(
        self, retrieval: Retrieval, demand: CoverageDemand, deadline: Deadline
    ) -> "_Answers":
        """Returns the answers of all shards, or of those that were in time if they are enough."""
        answers = _Answers()
        if len(self._shards) == 1:  # without it there is nothing to answer with
            answers.put(0, await _ask_one(self._shards[0], 0, retrieval, deadline))
            return answers
        start_time = time.monotonic()
        settings = self._settings
        waited_seconds = deadline.left() * settings.retrieval_time_share
        late = Deadline.after(min(waited_seconds, settings.retrieval_wait_seconds))
        number_of_task = {
            asyncio.create_task(_ask_one(shard, number, retrieval, deadline)): number
            for number, shard in enumerate(self._shards)
        }
        pending, unread = set(number_of_task), set(number_of_task)
        try:
            while pending:
                left = late.left()
                if left <= 0 and (
                    answers.are_enough(self._coverage(retrieval, answers), demand)
                    or demand.is_lost_with(answers.failures)
                ):
                    for task in pending:
                        self._shards[number_of_task[task]].note_late(time.monotonic() - start_time)
                    break
                done, pending = await asyncio.wait(
                    pending,
                    # Once it is late, only the next answer can change anything.
                    timeout=left if left > 0 else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in sorted(done, key=number_of_task.__getitem__):
                    unread.discard(task)
                    answers.put(number_of_task[task], task.result())
        finally:
            for task in pending:
                task.cancel()
            # Await the rest, so that asyncio does not warn "exception was never retrieved".
            if unread:
                await asyncio.gather(*unread, return_exceptions=True)
        return answers

    def _coverage(self, retrieval: Retrieval, answers: "_Answers") -> SearchCoverage:
        """Returns the coverage of `answers`; a shard without an answer is late."""
        late = DeadlineExceeded(what="a shard's share of the time")
        missing = {
            number: answers.failures.get(number, late)
            for number in range(len(self._shards))
            if number not in answers.hits
        }
        return self._counts.coverage(
            retrieval.query.index_id,
            retrieval.query.modality,
            len(self._shards),
            answers.item_counts(),
            missing,
            answers.retrievals(retrieval.query.modality),
        )


@dataclass(slots=True)
class _Answers:
    """Collects the shards' answers by their number."""

    hits: dict[int, ShardHits | None] = field(default_factory=dict)
    """None for a shard that does not know the index, since it never got an item of it."""
    failures: dict[int, TandemError] = field(default_factory=dict)

    def put(self, number: int, answer: ShardHits | TandemError) -> None:
        if isinstance(answer, ShardHits):
            self.hits[number] = answer
        elif isinstance(answer, IndexNotFound):
            self.hits[number] = None
        else:
            self.failures[number] = answer

    def are_enough(self, coverage: SearchCoverage, demand: CoverageDemand) -> bool:
        """Returns whether the search can be answered without the shards that are still missing."""
        # An index that no answering shard knows may exist on the missing ones.
        is_anything_known = not coverage.missing or not self.is_index_unknown()
        return demand.is_met_by(coverage) and is_anything_known

    def is_index_unknown(self) -> bool:
        """Returns whether none of the shards that answered knows the index."""
        return all(hits is None for hits in self.hits.values())

    def item_counts(self) -> dict[int, int]:
        """Returns the item count of each shard that answered."""
        return {number: hits.item_count if hits else 0 for number, hits in self.hits.items()}

    def retrievals(self, modality: Modality) -> list[ShardRetrieval]:
        """Returns how each shard found its hits, without those that do not know the index."""
        return [
            ShardRetrieval(number, modality, hits.path, hits.item_count, hits.keyword_state)
            for number, hits in sorted(self.hits.items())
            if hits is not None
        ]


async def _ask_one(
    shard: SearchedShard, number: int, retrieval: Retrieval, deadline: Deadline
) -> ShardHits | TandemError:
    """Returns the shard's answer, or the error that makes it missing; raises other errors."""
    query = retrieval.query
    if sequence := retrieval.minimum_sequences.get(number):
        query = replace(query, minimum_sequence=sequence)
    answer = await answer_or_error(shard.search(query, deadline), IndexNotFound, *MISSING_ERRORS)
    return answer if isinstance(answer, TandemError) else hits_of(answer, query)
