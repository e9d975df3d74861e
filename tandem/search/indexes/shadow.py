"""Repeats a share of searches in the generation before a promotion, and says if that was better."""

from __future__ import annotations

import asyncio
import math
import random
import time
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, replace

from tandem.chassis.telemetry.log import get_logger
from tandem.contract.deadline import Deadline
from tandem.contract.generation_ids import generation_number
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.query import SearchQuery
from tandem.errors import TandemError
from tandem.search.indexes.generations import Generations
from tandem.search.indexes.kept_generations import ROLL_BACK
from tandem.search.indexes.router import Router
from tandem.search.metrics import SHADOW_OVERLAP, SHADOW_ROLLBACKS, SHADOW_SEARCHES
from tandem.stages.aliases import AliasRecord

log = get_logger()

SHADOW_SECONDS = 3_600.0
"""After a promotion."""
_SHARE = 0.01
_SLOWER = 2.0
# With few searches, one in so long is repeated all the same.
_LONGEST_PAUSE_SECONDS = 5.0
# Of each of three tests after each search of an hour. A generation with all searches against it
# is out after 19 of them; one that is equal, in one hour of 2,000 (simulated).
_SIGNIFICANCE = 1e-4

_ROLLBACK_SECONDS = 60.0
_FAULTS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL")

Outcome = SearchResult | TandemError


@dataclass(slots=True)
class SignTest:
    """Counts the pairs that speak against the serving generation, and those for it."""

    against: int = 0
    favour: int = 0

    def note(self, is_live_bad: bool, is_shadow_bad: bool) -> None:
        """Counts a pair; one of equals says nothing."""
        self.against += is_live_bad > is_shadow_bad
        self.favour += is_live_bad < is_shadow_bad

    @property
    def p_value(self) -> float:
        """Returns at least how probable this is where neither is worse (Hoeffding's bound)."""
        count = self.against + self.favour
        surplus = self.against - count / 2
        return math.exp(-2 * surplus**2 / count) if surplus > 0 else 1.0


class ShadowVerdict:
    """Compares answers of the serving generation with those of the one before."""

    def __init__(self) -> None:
        self._tests = {name: SignTest() for name in ("failed", "empty", "slow")}

    def note(self, live: Outcome, shadow: Outcome) -> str:
        """Counts a pair; returns why the generation is worse, or nothing."""
        failed, empty, slow = self._tests.values()
        failed.note(_has_failed(live), _has_failed(shadow))
        if not isinstance(live, TandemError) and not isinstance(shadow, TandemError):
            empty.note(not live.items, not shadow.items)
            is_slower = _seconds(live) > _SLOWER * _seconds(shadow)
            slow.note(is_slower, not is_slower)
        for name, test in self._tests.items():
            if test.p_value < _SIGNIFICANCE:
                return (
                    f"{name}: {test.against} of {test.against + test.favour} searches against the "
                    f"generation before, p = {test.p_value:.1g}"
                )
        return ""


class Shadow:
    """Compares a sample of one orchestrator's searches for an hour after each promotion."""

    def __init__(self, router: Router, generations: Generations) -> None:
        self._router, self._generations = router, generations
        self._verdicts: dict[tuple[str, float], ShadowVerdict] = {}
        self._running: asyncio.Task[None] | None = None
        self._begin_time = 0.0

    def offer(
        self, record: AliasRecord, query: SearchQuery, live: Outcome, timeout_seconds: float
    ) -> None:
        """Repeats a search by chance, out of its caller's way and in its time; one at a time."""
        is_due = record.previous and time.time() < record.promoted_time + SHADOW_SECONDS
        # A caller's own token may fail a search, or have it wait: no fault of the generation.
        if not is_due or query.consistency_tokens:
            return
        now = time.monotonic()
        is_free = self._running is None or self._running.done()
        is_chosen = random.random() < _SHARE or now > self._begin_time + _LONGEST_PAUSE_SECONDS
        if is_free and is_chosen:
            self._begin_time = now
            comparing = self._compare(record, query, live, Deadline.after(timeout_seconds))
            self._running = asyncio.create_task(comparing, context=Context())

    async def _compare(
        self, record: AliasRecord, query: SearchQuery, live: Outcome, deadline: Deadline
    ) -> None:
        # With the contents that it asks for, which may be why it fails.
        before = f"{record.alias}@{generation_number(record.previous)}"
        repeated = replace(query, index_id=before)
        shadow: Outcome
        try:
            route = await self._router.query_route(repeated, deadline)
            shadow = await route.models.searcher.search(route.own(repeated), deadline)
        except TandemError as error:
            shadow = error.kept()
        verdict = self._verdicts.setdefault((record.alias, record.promoted_time), ShadowVerdict())
        SHADOW_SEARCHES.labels("failed" if isinstance(shadow, TandemError) else "answered").inc()
        if isinstance(live, SearchResult) and isinstance(shadow, SearchResult):
            SHADOW_OVERLAP.observe(_overlap(live, shadow))
        if why := verdict.note(live, shadow):
            SHADOW_ROLLBACKS.labels(why.partition(":")[0]).inc()
            log.error("generation rolled back", index_id=record.serving, why=why)
            # Another orchestrator may have been faster, or an operator.
            with suppress(TandemError):
                in_time = Deadline.after(_ROLLBACK_SECONDS)
                await self._generations.ask(ROLL_BACK, record.alias, why, "shadow", in_time)


def _has_failed(outcome: Outcome) -> bool:
    """Returns whether the service failed; what a caller asked wrongly says nothing of a model."""
    return isinstance(outcome, TandemError) and outcome.status in _FAULTS


def _seconds(result: SearchResult) -> float:
    return result.seconds.total - result.seconds.fetch


def _overlap(live: SearchResult, shadow: SearchResult) -> float:
    """Returns the share of the items that both answers have."""
    ids = {each.item_id for each in live.items}, {each.item_id for each in shadow.items}
    longest = max(map(len, ids))
    return len(ids[0] & ids[1]) / longest if longest else 1.0
