"""The rerank stage: scores candidates with the cross-encoder, chunk by chunk, best first."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tandem.contract.content import Content, Tokens
from tandem.contract.deadline import Deadline
from tandem.contract.fusion import FusionMethod
from tandem.contract.inference_cost import InferenceCost
from tandem.contract.model_description import AdaptiveDepthRule, ProbabilityCalibration
from tandem.contract.search.answer import RerankSummary
from tandem.contract.search.answer_names import ErrorReason, RerankStopReason
from tandem.contract.search.query import SearchQuery
from tandem.errors import (
    CrossEncoderMissing,
    DeadlineExceeded,
    InternalFault,
    ItemCorrupt,
    ModelOutputInvalid,
    ModelUnavailable,
    Overloaded,
    QueryContentMissing,
    RankingInvalid,
    RerankUnavailable,
    ServiceUnavailable,
    TandemError,
)
from tandem.search.calls.fan_out import answer_or_error, fan_out
from tandem.search.metrics import RERANK_STOPS, note_rerank
from tandem.search.rerank.adaptive_depth import DepthRules, is_deep_enough, next_look
from tandem.search.rerank.pace import RerankPace
from tandem.search.shard_map import ShardMap
from tandem.stages.hit import Hit
from tandem.stages.reranking import Candidates, Match, ScoredBatch, ScoreQuery

# A bi-encoder alone has no cross-encoder, unless a remote one is set for it later.
_ABSENT_SECONDS = 10.0


for _each in RerankStopReason:
    # A counter that first appears at its first count hides that count from rate().
    if _each is not RerankStopReason.UNSPECIFIED:
        RERANK_STOPS.labels(_each.lower())

STOP_OF_ERROR: Mapping[type[TandemError], RerankStopReason] = {
    DeadlineExceeded: RerankStopReason.TIME,
    Overloaded: RerankStopReason.OVERLOADED,
    ModelOutputInvalid: RerankStopReason.OUTPUT_INVALID,
    ServiceUnavailable: RerankStopReason.UNAVAILABLE,
    ModelUnavailable: RerankStopReason.UNAVAILABLE,
    InternalFault: RerankStopReason.UNAVAILABLE,
    ItemCorrupt: RerankStopReason.UNAVAILABLE,
    QueryContentMissing: RerankStopReason.NOT_APPLICABLE,
    CrossEncoderMissing: RerankStopReason.NOT_APPLICABLE,
}
"""Errors that end the rerank but not the search. Any other error is the caller's to fix."""


@dataclass(frozen=True, slots=True)
class RerankOutcome:
    """Holds how deep a rerank got, and its scores."""

    stop: RerankStopReason
    reranked_depth: int = 0
    """Candidates scored, from the first in retrieval order."""
    matches: Mapping[str, Match] = field(default_factory=dict)
    """By item id."""
    missing_count: int = 0
    """Of these candidates, those that no longer existed."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    model_version: int = 0
    """The version that scored all of them; 0 if none was scored."""
    reranker: str = ""
    """The cross-encoder that scored them; empty if none was scored."""
    default_fusion: FusionMethod | None = None
    """How its authors combine both scores; None if none was scored."""

    @property
    def is_uncalibrated(self) -> bool:
        """Whether scores are no probabilities."""
        return any(match.probability is None for match in self.matches.values())

    @property
    def summary(self) -> RerankSummary:
        """What an answer says of it."""
        return RerankSummary(
            self.reranked_depth,
            self.stop,
            self.missing_count,
            self.reranker,
            ErrorReason.UNCALIBRATED if self.is_uncalibrated else None,
        )

    def rescaled(self, scaling: ProbabilityCalibration) -> "RerankOutcome":
        """Returns it with the probabilities of another scaling."""
        matches = {name: Match.of(each.logit, scaling) for name, each in self.matches.items()}
        return replace(self, matches=matches)

    def check_complete(self, rerank_k: int) -> None:
        """Raises DeadlineExceeded or RerankUnavailable if the rerank was cut short.

        Raises RankingInvalid if no rerank of the query is possible.
        """
        if self.stop is RerankStopReason.NOT_APPLICABLE:
            raise RankingInvalid(
                why="rerank_required is set, but the cross-encoder scores a text against an image: "
                "give the query a part of the other modality than the target, with tokens"
            )
        if self.stop is RerankStopReason.TIME:
            raise DeadlineExceeded(
                what=f"the rerank, after {self.reranked_depth} of {rerank_k} candidates"
            )
        if self.stop.is_short:
            raise RerankUnavailable(
                stop=self.stop.name, reranked_depth=self.reranked_depth, rerank_k=rerank_k
            )


class CandidateScorer(Protocol):
    """A reranker of one shard's candidates, alone or for several searches at once."""

    @property
    def is_refusing(self) -> bool:
        """Whether the circuit breaker would refuse a call now."""

    async def score(
        self, query: ScoreQuery, requests: Sequence[Candidates], deadline: Deadline
    ) -> ScoredBatch:
        """Returns the scores of a single request; raises its error."""


class RerankStage:
    """Has each shard's rerank_svc score the candidates of that shard."""

    def __init__(
        self,
        scorers: Sequence[CandidateScorer],
        shard_map: ShardMap,
        pace: RerankPace,
        depth_rules: DepthRules,
    ) -> None:
        """Takes `scorers` by shard number, as many as the map has."""
        self._scorers = scorers
        self._shard_map = shard_map
        self._pace = pace
        self._depth_rules = depth_rules
        self._absent_until_time = 0.0
        """Until then, queries without tokens are not sent: there is no cross-encoder for them."""

    async def rerank(
        self,
        query: SearchQuery,
        tokens: Tokens,
        fingerprint: str,
        hits: Sequence[Hit],
        deadline: Deadline,
        model_version: int = 0,
        content: Content | None = None,
    ) -> RerankOutcome:
        """Scores the first `rerank_k` hits, or as many of them as time allows.

        `hits` are in retrieval order. One version of the model scores all of them; 0 leaves the
        choice to the first rerank_svc that answers. The scored hits have no gap: if a chunk fails
        on one shard, only its candidates before that shard's first one count. The outcome says if
        time ran out or a service failed; what is wrong with the query is raised.
        """
        if tokens.is_empty and time.monotonic() < self._absent_until_time:
            return RerankOutcome(RerankStopReason.NOT_APPLICABLE)
        candidates = hits[: query.depth.rerank_k]
        owners = [self._shard_map.owner(query.index_id, hit.item_id) for hit in candidates]
        run = _Run(
            ScoreQuery(query.index_id, fingerprint, model_version),
            tokens,
            candidates,
            owners,
            content,
        )
        rule = None
        if query.adaptive_depth:
            rule = await self._depth_rules.rule(fingerprint, model_version, deadline)
        while run.stop is None:
            await self._score_next(run, rule, deadline)
        outcome = run.outcome()
        note_rerank(outcome.stop, outcome.reranked_depth)
        return outcome

    async def _score_next(
        self, run: "_Run", rule: AdaptiveDepthRule | None, deadline: Deadline
    ) -> None:
        """Scores the next chunk, or sets why the run stops."""
        left_count = len(run.hits) - run.depth
        if not left_count:
            run.stop = RerankStopReason.COMPLETE
        elif rule and is_deep_enough(rule, run.hits, run.depth, run.logits()):
            run.stop = RerankStopReason.ADAPTIVE
        # Candidates after one whose breaker is open could not count.
        elif not (open_count := self._open_count(run)):
            run.stop = RerankStopReason.UNAVAILABLE
        else:
            wanted_count = min(left_count, next_look(rule, run.depth)) if rule else left_count
            size = self._pace.chunk_size(min(wanted_count, open_count), deadline.left())
            if size:
                await self._score_chunk(run, size, deadline)
            else:
                run.stop = RerankStopReason.TIME

    def _open_count(self, run: "_Run") -> int:
        """Returns how many candidates come before one whose shard's circuit breaker is open."""
        refusing = {number for number in set(run.owners) if self._scorers[number].is_refusing}
        left = run.owners[run.depth :]
        if not refusing:
            return len(left)
        return next((n for n, owner in enumerate(left) if owner in refusing), len(left))

    async def _score_chunk(self, run: "_Run", size: int, deadline: Deadline) -> None:
        """Scores the next candidates, and adds the outcome to the run."""
        groups = run.next_by_owner(size)
        start_time = time.monotonic()
        calls = (
            self._scorers[number].score(
                run.query, [Candidates(run.tokens, item_ids, run.content)], deadline
            )
            for number, item_ids in groups.items()
        )
        scored = await fan_out(*(answer_or_error(each, *STOP_OF_ERROR) for each in calls))
        seconds = time.monotonic() - start_time
        failures: dict[int, TandemError] = {}
        read_count = 0
        for number, answer in zip(groups, scored, strict=True):
            if isinstance(answer, ScoredBatch) and not run.is_of_version(answer.model_version):
                # Logits of two versions are not comparable.
                failures[number] = ModelUnavailable(
                    model=f"of rerank-{number}", why=f"it is at version {answer.model_version}"
                )
                run.note_failure(RerankStopReason.UNAVAILABLE)
            elif isinstance(answer, ScoredBatch):
                run.matches |= answer.matches
                run.cost += answer.cost
                run.reranker = run.reranker or answer.reranker
                run.default_fusion = run.default_fusion or answer.default_fusion
                read_count += answer.cost.pair_count
            else:
                if isinstance(answer, CrossEncoderMissing):
                    self._absent_until_time = time.monotonic() + _ABSENT_SECONDS
                failures[number] = answer
                run.note_failure(STOP_OF_ERROR[type(answer)])
        run.advance(size, failures)
        if any(isinstance(failure, DeadlineExceeded) for failure in failures.values()):
            self._pace.note_late(size, seconds)
        elif read_count and not failures:
            # Scores from the cache say nothing about the pace.
            self._pace.note(read_count, seconds)


def joined_outcome(outcomes: Sequence[RerankOutcome]) -> RerankOutcome:
    """Joins the reranks of an answer's modalities.

    The stop is that of the first rerank that was cut short, else of the first that did not
    complete; one that is not applicable does not count.
    """
    applied = [each for each in outcomes if each.stop is not RerankStopReason.NOT_APPLICABLE]
    if len(applied) < 2:
        return applied[0] if applied else outcomes[0]
    stops = sorted(
        (each.stop for each in applied),
        key=lambda stop: (not stop.is_short, stop is RerankStopReason.COMPLETE),
    )
    return RerankOutcome(
        stops[0],
        sum(each.reranked_depth for each in applied),
        {item_id: match for each in applied for item_id, match in each.matches.items()},
        sum(each.missing_count for each in applied),
        sum((each.cost for each in applied), InferenceCost()),
        next((each.model_version for each in applied if each.model_version), 0),
        next((each.reranker for each in applied if each.reranker), ""),
        next((each.default_fusion for each in applied if each.default_fusion), None),
    )


@dataclass(slots=True, eq=False)
class _Run:
    """Holds one rerank in progress."""

    query: ScoreQuery
    """Its model version, if the caller chose none, is 0 until the first answer names one."""
    tokens: Tokens
    hits: Sequence[Hit]
    """The candidates."""
    owners: Sequence[int]
    """The shard of each candidate."""
    content: Content | None = None
    """The query itself, if it has one of the tokens' modality."""
    reranker: str = ""
    depth: int = 0
    matches: dict[str, Match] = field(default_factory=dict)
    """Of the candidates down to the depth; after a failure, also of some below it."""
    cost: InferenceCost = field(default_factory=InferenceCost)
    stop: RerankStopReason | None = None
    default_fusion: FusionMethod | None = None

    def note_failure(self, stop: RerankStopReason) -> None:
        """Stops the run; of several failures, one other than a lack of time says more."""
        if self.stop is None or self.stop is RerankStopReason.TIME:
            self.stop = stop

    def is_of_version(self, version: int) -> bool:
        """Returns whether scores of that version fit the others; the first scores choose it.

        A service of an earlier release names no version, and has only one.
        """
        if not self.query.model_version:
            self.query = replace(self.query, model_version=version)
        return version in (0, self.query.model_version)

    def next_by_owner(self, size: int) -> Mapping[int, Sequence[str]]:
        """Returns the ids of the next candidates by shard, in their order."""
        groups: dict[int, list[str]] = {}
        for place in range(self.depth, self.depth + size):
            groups.setdefault(self.owners[place], []).append(self.hits[place].item_id)
        return groups

    def advance(self, size: int, failed_shards: Collection[int]) -> None:
        """Advances the depth up to the first candidate that a shard failed to score."""
        for owner in self.owners[self.depth : self.depth + size]:
            if owner in failed_shards:
                return
            self.depth += 1

    def logits(self) -> list[float]:
        return [match.logit for match in self.matches.values()]

    def outcome(self) -> RerankOutcome:
        """Returns the scores down to the depth."""
        assert self.stop is not None
        counted = [hit.item_id for hit in self.hits[: self.depth]]
        matches = {item_id: self.matches[item_id] for item_id in counted if item_id in self.matches}
        return RerankOutcome(
            self.stop,
            self.depth,
            matches,
            len(counted) - len(matches),
            self.cost,
            self.query.model_version if matches else 0,
            self.reranker if matches else "",
            self.default_fusion if matches else None,
        )
