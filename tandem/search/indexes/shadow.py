"""Repeats some searches in the generation before a promotion, and says if that was better."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from functools import partial

from tandem.chassis.access.callers import asking_caller
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
_SLOWER = 2.0
# Between two searches of anyone, and twice as long between two of one caller.
_PAUSE_SECONDS = 1.0
# Of each of three tests after each search of an hour. A generation with all searches against it
# is out after 19 of them; one that is equal, in one hour of 2,000 (simulated).
_SIGNIFICANCE = 1e-4

# Of a caller that searches once in 38 s, the least time in which another's 19 searches can decide.
_ASKED_SHARE = 0.05

_ROLLBACK_SECONDS = 60.0
_FAULTS = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL")

Outcome = SearchResult | TandemError


class ShadowComparison:
    """Compares answers of the serving generation with those of the one before, by caller."""

    def __init__(self, promoted_time: float = 0.0) -> None:
        self.promoted_time = promoted_time
        self.running: asyncio.Task[None] | None = None
        self._turn_time = -math.inf
        self._turn_times: dict[str, float] = {}
        """By caller."""
        self._signs: dict[str, dict[str, Counter[int]]] = {}
        """By test and caller."""

    def takes(self, caller: str) -> bool:
        """Returns whether it is the caller's turn, and takes it; there is one at a time."""
        now, own_time = time.monotonic(), self._turn_times.get(caller, -math.inf)
        is_turn = now >= max(self._turn_time, own_time + _PAUSE_SECONDS) + _PAUSE_SECONDS
        if is_turn := is_turn and (self.running is None or self.running.done()):
            self._turn_time = self._turn_times[caller] = now
        return is_turn

    def note(self, caller: str, live: Outcome, shadow: Outcome) -> str:
        """Counts a pair; returns why the generation is worse, or nothing.

        Whichever caller is left out, the others must say the same, clearly or all of them, unless
        they hardly ask. So one that is alone is believed.
        """
        for name, sign in _signs(live, shadow).items():
            callers = self._signs.setdefault(name, {})
            callers.setdefault(caller, Counter())[sign] += 1
            every = sum(callers.values(), Counter[int]())
            p_value = _p_value(every)
            if p_value < _SIGNIFICANCE and all(
                _agree(every - own, every.total()) for own in callers.values()
            ):
                return (
                    f"{name}: {every[1]} of {every[1] + every[-1]} searches against the "
                    f"generation before, p = {p_value:.1g}"
                )
        return ""


class Shadow:
    """Compares some of one orchestrator's searches for an hour after each promotion."""

    def __init__(self, router: Router, generations: Generations) -> None:
        self._router, self._generations = router, generations
        self.comparisons: dict[str, ShadowComparison] = {}
        """By alias."""

    def offer(
        self, record: AliasRecord, query: SearchQuery, live: Outcome, timeout_seconds: float
    ) -> None:
        """Repeats a search in its caller's turn, out of its way and in its time."""
        is_due = record.previous and time.time() < record.promoted_time + SHADOW_SECONDS
        # A caller's own token may fail a search, or have it wait: no fault of the generation.
        if not is_due or query.consistency_tokens:
            return
        compared = self.comparisons.get(record.alias)
        if compared is None or compared.promoted_time != record.promoted_time:
            compared = self.comparisons[record.alias] = ShadowComparison(record.promoted_time)
        if compared.takes(caller := asking_caller()):
            note = partial(compared.note, caller)
            comparing = self._compare(record, query, live, note, Deadline.after(timeout_seconds))
            compared.running = asyncio.create_task(comparing, context=Context())

    async def _compare(
        self,
        record: AliasRecord,
        query: SearchQuery,
        live: Outcome,
        note: Callable[[Outcome, Outcome], str],
        deadline: Deadline,
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
        SHADOW_SEARCHES.labels("failed" if isinstance(shadow, TandemError) else "answered").inc()
        if isinstance(live, SearchResult) and isinstance(shadow, SearchResult):
            SHADOW_OVERLAP.observe(_overlap(live, shadow))
        if why := note(live, shadow):
            SHADOW_ROLLBACKS.labels(why.partition(":")[0]).inc()
            log.error("generation rolled back", index_id=record.serving, why=why)
            # Another orchestrator may have been faster, or an operator.
            with suppress(TandemError):
                in_time = Deadline.after(_ROLLBACK_SECONDS)
                await self._generations.ask(ROLL_BACK, record.alias, why, "shadow", in_time)


def _signs(live: Outcome, shadow: Outcome) -> dict[str, int]:
    """Returns what a pair says, by test: 1 against the serving generation, -1 for it, or 0."""
    signs = {"failed": _has_failed(live) - _has_failed(shadow)}
    if isinstance(live, SearchResult) and isinstance(shadow, SearchResult):
        signs["empty"] = bool(shadow.items) - bool(live.items)
        # What caches answer is fast in a slow generation, and they are by caller: here another.
        if not live.cost.cache_hit_count and not shadow.cost.cache_hit_count:
            signs["slow"] = 1 if _seconds(live) > _SLOWER * _seconds(shadow) else -1
    return signs


def _p_value(signs: Counter[int]) -> float:
    """Returns at least how probable this is where neither is worse (Hoeffding's bound)."""
    count = signs[1] + signs[-1]
    surplus = signs[1] - count / 2
    return math.exp(-2 * surplus**2 / count) if surplus > 0 else 1.0


def _agree(others: Counter[int], count: int) -> bool:
    """Returns whether the others say so too, or have too few of all pairs to be asked."""
    is_clear = others[1] == others.total() or _p_value(others) < _SIGNIFICANCE
    return is_clear or others.total() < _ASKED_SHARE * count


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
