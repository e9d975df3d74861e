"""Answers one query: encodes it, retrieves from every shard, reranks, and fetches contents."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tandem.chassis.telemetry.tracing import annotate
from tandem.contract.deadline import Deadline
from tandem.contract.modality import Modality
from tandem.contract.search.answer import NO_SECONDS, FoundItem, SearchResult
from tandem.contract.search.answer_names import RerankStopReason
from tandem.contract.search.query import PageQuery, SearchQuery
from tandem.contract.search.score_calibration import ScoreCalibration, ScoreKind
from tandem.errors import CrossEncoderMissing, Uncalibrated
from tandem.search.calls.fan_out import fan_out
from tandem.search.contents.content_budget import AnswerBudget, Taking
from tandem.search.contents.item_reads import fetched_items, with_contents
from tandem.search.coverage import LastItemCounts, SearchCoverage, joined_coverage
from tandem.search.cursors.cursor_wire import make_cursor, page_of
from tandem.search.degradation import degradations_of
from tandem.search.indexes.calibrations import Calibrations
from tandem.search.metrics import (
    StageLaps,
    note_degradations,
    note_promise,
    note_search,
    timed_stage,
)
from tandem.search.query_encoder import EncodedQuery, QueryEncoder
from tandem.search.ranking.abstention import ScoreBar, with_probabilities
from tandem.search.ranking.ranking import (
    StageOrder,
    rank_answer_aside,
    reranked_hits,
    retrieved_order,
)
from tandem.search.rerank.adaptive_depth import DepthRules
from tandem.search.rerank.pace import RerankPace
from tandem.search.rerank.pair_quota import PairQuota
from tandem.search.rerank.rerank import (
    CandidateScorer,
    RerankOutcome,
    RerankStage,
    joined_outcome,
)
from tandem.search.retrieval import Retrieval, Retriever, SearchedShard
from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings
from tandem.search.shard_map import ShardMap
from tandem.search.time_budget import TimeBudget
from tandem.search.writes.consistency_token import read_tokens
from tandem.stages.encoding import Encoder
from tandem.stages.hit import Hit
from tandem.stages.items import FetchedItem
from tandem.stages.retrieval import ShardQuery
from tandem.stages.shard import Shard
from tandem.stages.stage import OrderedHits, Stage, StageOutcome


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SearchServices:
    """Holds what searches call, how they divide their time, and what they share."""

    encoder: Encoder
    shards: Sequence[SearchedShard]
    """By number, as many as the map has; so are the readers and scorers."""
    readers: Sequence[Shard]
    scorers: Sequence[CandidateScorer]
    shard_map: ShardMap
    calibrations: Calibrations
    settings: SearchSettings = SEARCH_DEFAULTS
    counts: LastItemCounts = field(default_factory=LastItemCounts)
    pace: RerankPace = field(default_factory=RerankPace)
    stages: Sequence[Stage] = ()
    """Those after the rerank, in their order."""


@dataclass(slots=True, eq=False)
class _Search:
    """Holds one search that has its hits."""

    query: SearchQuery
    budget: TimeBudget
    laps: StageLaps
    encoded: EncodedQuery
    hits: Sequence[Hit]
    """Of each modality in retrieval order, the target's first."""
    coverage: SearchCoverage
    calibrations: Sequence[ScoreCalibration] = ()
    """Of the index: they take the place of the model's."""
    unfiltered_ids: Sequence[str] | None = None
    """What it finds without its filter, best first, if that decides what is shown."""
    contents: dict[str, FetchedItem] = field(default_factory=dict)

    def kind(self, modality: Modality) -> ScoreKind:
        """Returns the kind of the similarities of items of that modality."""
        return ScoreKind(
            model_fingerprint=self.encoded.fingerprint,
            query_modality=self.encoded.modality,
            target_modality=modality,
        )

    def bar(self, outcome: RerankOutcome) -> ScoreBar | None:
        """Returns what an item's score must be above; raises Uncalibrated."""
        kind = self.kind(self.query.target_modality)
        if self.coverage.missing:
            # Candidates reach as far down as under a filter; similarities keep the promise.
            outcome = replace(outcome, matches={})
        return ScoreBar.of(self.query, outcome, self.calibrations, kind, self.unfiltered_ids)


class Searcher:
    """Answers queries over all shards of an index."""

    def __init__(
        self,
        services: SearchServices,
        depth_rules: DepthRules,
        content_budget: AnswerBudget | None = None,
    ) -> None:
        """Shares one `content_budget` among its answers; without it, each answer has its own."""
        self.services = services
        self._answer_budget = content_budget
        self.depth_rules = depth_rules
        self._query_encoder = QueryEncoder(services.encoder, services.readers, services.shard_map)
        self._retriever = Retriever(
            services.shards,
            services.settings,
            services.counts,
        )
        self._reranker = RerankStage(
            services.scorers, services.shard_map, services.pace, depth_rules
        )

    async def search(self, query: SearchQuery, deadline: Deadline) -> SearchResult:
        """Returns the answer, or raises the named error of the stage that failed.

        The answer may lack a shard or some or all of the rerank; its degradations say so. An item
        without content was deleted after it was found. No stage gets more than its part of the
        time that is left.
        """
        search = await self._begin(query, deadline)
        outcome = await self._rerank(search)
        return await self._final_answer(search, outcome)

    async def stream(
        self, query: SearchQuery, deadline: Deadline
    ) -> AsyncGenerator[SearchResult, None]:
        """Yields the answer in retrieval order, then the one that `search` would return.

        The rerank runs while the caller takes the first.
        """
        search = await self._begin(query, deadline)
        reranking = asyncio.create_task(self._rerank(search))
        try:
            unread = RerankOutcome(RerankStopReason.DISABLED)
            bar = search.bar(unread)
            with timed_stage("rank", search.laps):
                order = await retrieved_order(query, search.hits, bar)
            # Pages are of the final order.
            first = order[: query.depth.return_n]
            retrieved = await self._answer(search, first, unread, bar)
            yield replace(retrieved, is_final=False)
            yield await self._final_answer(search, await reranking)
        finally:
            reranking.cancel()
            await asyncio.gather(reranking, return_exceptions=True)

    async def _begin(self, query: SearchQuery, deadline: Deadline) -> _Search:
        laps = StageLaps()
        minimum_sequences = read_tokens(query.consistency_tokens, self.services.shard_map)
        calibrations = await self.services.calibrations.of(query, deadline)
        stages_share = sum(stage.time_share for stage in self._asked(query))
        budget = TimeBudget.until(deadline, self.services.settings, stages_share)
        with timed_stage("encode", laps):
            encoded = await self._query_encoder.encode(query, budget.encode_end)
        with timed_stage("retrieve", laps):
            annotate(
                {
                    "tandem.index_id": query.index_id,
                    "tandem.retrieve_k": query.depth.retrieve_k,
                    "tandem.shard_count": len(self.services.shards),
                }
            )
            asked = [query]
            if query.filter and query.ranking.max_false_answer_rate and not query.rerank_disabled:
                asked.append(replace(query, filter=None))
            (hits, coverage), *more = await fan_out(
                *(
                    self._retrieve(each, encoded, minimum_sequences, budget.retrieval_end)
                    for each in asked
                )
            )
        unfiltered_ids = [hit.item_id for hit in more[0][0]] if more else None
        return _Search(query, budget, laps, encoded, hits, coverage, calibrations, unfiltered_ids)

    async def _retrieve(
        self,
        query: SearchQuery,
        encoded: EncodedQuery,
        minimum_sequences: Mapping[int, int],
        deadline: Deadline,
    ) -> tuple[list[Hit], SearchCoverage]:
        """Returns the hits of each modality in retrieval order, the target's first."""
        retrieved = await fan_out(
            *(
                self._retriever.retrieve(
                    Retrieval(
                        ShardQuery(
                            index_id=query.index_id,
                            fingerprint=encoded.fingerprint,
                            embeddings=encoded.embeddings,
                            modality=modality,
                            query_modality=encoded.modality,
                            retrieve_k=query.depth.retrieve_k,
                            filter=query.filter,
                            embeddings_included=query.ranking.are_embeddings_needed
                            or bool(self._asked(query)),
                            keywords=query.hybrid.keywords if query.hybrid else "",
                        ),
                        minimum_sequences,
                        query.full_coverage_required,
                        query.hybrid,
                    ),
                    deadline,
                )
                for modality in query.modalities
            )
        )
        hits = [hit for found, _ in retrieved for hit in found]
        return hits, joined_coverage([coverage for _, coverage in retrieved])

    async def _rerank(self, search: _Search) -> RerankOutcome:
        """Reranks the modalities for which the query has tokens, the target first.

        Raises if the query requires a complete rerank and this one is not.
        """
        query, encoded = search.query, search.encoded
        if query.rerank_disabled:
            return RerankOutcome(RerankStopReason.DISABLED)
        outcomes = []
        for modality in query.modalities:
            candidates = [hit for hit in search.hits if hit.modality is modality]
            tokens = encoded.tokens_for(modality, candidates)
            if tokens is None:
                outcomes.append(RerankOutcome(encoded.unread_stop))
                continue
            with timed_stage("rerank", search.laps), PairQuota() as quota:
                annotate({"tandem.rerank_k": search.query.depth.rerank_k})
                quota.take(min(len(candidates), query.depth.rerank_k))
                outcome = await self._reranker.rerank(
                    query,
                    tokens,
                    encoded.fingerprint,
                    candidates,
                    search.budget.rerank_end,
                    # The same model version scores both modalities of an answer.
                    next((o.model_version for o in outcomes if o.model_version), None)
                    or encoded.model_version,
                    encoded.contents.get(modality),
                )
                quota.note_read(outcome.cost.pair_count)
                kind, known = search.kind(modality), search.calibrations
                outcomes.append(with_probabilities(query, candidates, outcome, known, kind))
        outcome = joined_outcome(outcomes)
        if outcome.stop is RerankStopReason.NOT_APPLICABLE and encoded.lacks_cross_encoder:
            if query.rerank_required:
                raise CrossEncoderMissing(what="rerank_required")
            if query.ranking.min_probability is not None:
                raise CrossEncoderMissing(what="min_probability")
        if query.ranking.min_probability is not None and outcome.is_uncalibrated:
            raise Uncalibrated(what="min_probability")
        if query.rerank_required:
            outcome.check_complete(query.depth.rerank_k)
        return outcome

    async def _final_answer(self, search: _Search, outcome: RerankOutcome) -> SearchResult:
        if search.query.ranking.fusion is None:
            ranking = search.query.ranking.by_default(outcome.default_fusion)
            search.query = replace(search.query, ranking=ranking)
        bar = search.bar(outcome)
        orders, outcomes = await self._run_stages(search, outcome, bar)
        with timed_stage("rank", search.laps):
            order = await rank_answer_aside(search.query, search.hits, outcome.matches, orders, bar)
        answer = await self._answer(search, order, outcome, bar, outcomes)
        note_degradations(answer.degradations)
        if bar and answer.abstention:
            note_promise(search.query.index_id, bar.calibration, answer.abstention)
        note_search(search.encoded.modality, search.query.modalities, answer.seconds.total)
        return answer

    async def _run_stages(
        self, search: _Search, outcome: RerankOutcome, bar: ScoreBar | None
    ) -> tuple[list[StageOrder], list[StageOutcome]]:
        """Has each stage that the query asks for score the first hits, in the order so far."""
        query, encoded = search.query, search.encoded
        if bar and bar.abstention(search.hits, outcome.matches).abstained:
            # Nothing is left to reorder, which is the answer and no failure of a stage.
            query = replace(query, neighbours_required=False)
        orders: list[StageOrder] = []
        outcomes: list[StageOutcome] = []
        for stage in self._asked(query):
            with timed_stage(stage.name, search.laps):
                hits = {
                    modality: reranked_hits(
                        query, search.hits, outcome.matches, modality, orders, bar
                    )
                    for modality in query.modalities
                }
                ordered = OrderedHits(
                    query.index_id,
                    encoded.fingerprint,
                    encoded.embeddings,
                    encoded.modality,
                    hits,
                    outcome.matches,
                )
                scored = await stage.score(query, ordered, search.budget.stages_end)
            orders.append(StageOrder(stage, scored.scores))
            outcomes.append(scored)
        return orders, outcomes

    def _asked(self, query: SearchQuery) -> list[Stage]:
        return [stage for stage in self.services.stages if stage.is_asked(query)]

    async def _answer(
        self,
        search: _Search,
        order: Sequence[FoundItem],
        outcome: RerankOutcome,
        bar: ScoreBar | None,
        by_stages: Sequence[StageOutcome] = (),
    ) -> SearchResult:
        """Returns the first items of the order, with their contents if the query asks for them."""
        query, encoded, laps = search.query, search.encoded, search.laps
        return_n = query.depth.return_n
        found = order[:return_n]
        if query.content_included or query.attributes_included:
            with timed_stage("fetch", laps):
                found = with_contents(found, await self._fetch_new(search, found))
        degradations = [kind for stage in by_stages for kind in stage.degradations]
        answer = SearchResult(
            tuple(found),
            encoded.fingerprint,
            NO_SECONDS,
            search.coverage.summary,
            outcome.summary,
            degradations_of(encoded, search.coverage, outcome, degradations),
            tuple(encoded.text_uses),
            sum((stage.cost for stage in by_stages), encoded.cost + outcome.cost),
            model_version=encoded.model_version or outcome.model_version,
            retrievals=tuple(search.coverage.retrievals),
            abstention=bar.abstention(search.hits, outcome.matches) if bar else None,
            **{name: value for stage in by_stages for name, value in stage.summary.items()},
        )
        cursor = make_cursor(order[return_n:], answer, index_id=query.index_id, return_n=return_n)
        laps.end("rank")
        return replace(answer, next_cursor=cursor, seconds=laps.stage_seconds())

    async def _fetch_new(
        self, search: _Search, found: Sequence[FoundItem]
    ) -> Mapping[str, FetchedItem]:
        """Returns the contents, and reads only those that an earlier answer did not have."""
        known = search.contents
        wanted = dict.fromkeys(item.item_id for item in found)
        budget = self._answer_budget or AnswerBudget()
        async with budget.taking(content_included=search.query.content_included) as taking:
            for item_id in wanted.keys() & known.keys():
                taking.take(known[item_id].size_bytes)
            unread = [item_id for item_id in wanted if item_id not in known]
            known |= await self._get(search.query.index_id, unread, search.budget.end, taking)
        return {item_id: known[item_id] for item_id in wanted if item_id in known}

    async def page(
        self,
        query: PageQuery,
        deadline: Deadline,
        check_kept: Callable[[str, Deadline], Awaitable[None]],
    ) -> SearchResult:
        """Returns another page of an earlier answer, all of it but the contents from the cursor.

        `check_kept` raises for a generation that was dropped since. Raises CursorInvalid,
        KOutOfRange, IndexIdInvalid, and AnswerTooLarge for the contents.
        """
        laps = StageLaps()
        with timed_stage("rank", laps):
            page, index_id = page_of(query)
        await check_kept(index_id, deadline)
        if query.content_included or query.attributes_included:
            item_ids = list(dict.fromkeys(item.item_id for item in page.items))
            included = query.content_included
            with timed_stage("fetch", laps):
                async with AnswerBudget().taking(content_included=included) as taking:
                    contents = await self._get(index_id, item_ids, deadline, taking)
            page = replace(page, items=tuple(with_contents(page.items, contents)))
        return replace(page, seconds=laps.stage_seconds())

    async def _get(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        fetched = await fan_out(
            *(
                fetched_items(self.services.readers[number], index_id, owned, deadline, taking)
                for number, owned in self.services.shard_map.group(index_id, item_ids).items()
            )
        )
        return {item_id: content for contents in fetched for item_id, content in contents.items()}
