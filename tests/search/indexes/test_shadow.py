"""What a shadow search says about the generation that serves."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tandem.contract.inference_cost import InferenceCost
from tandem.contract.search.answer import NO_SECONDS, Coverage, FoundItem, SearchResult
from tandem.errors import ConsistencyTokenInvalid, ModelMismatch, ModelUnavailable, TandemError
from tandem.search.indexes import shadow
from tandem.search.indexes.kept_generations import ROLL_BACK
from tandem.search.indexes.shadow import ShadowComparison
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import image_item, text_item
from tests.support.orchestrator_svc.generations import in_time, query_of, two_generations

OTHER_MAP_TOKEN = make_token({0: 0}, ShardMap(3))
COVERAGE = Coverage(1, 1, 10, 10, {})


def answer(seconds: float = 0.1, count: int = 3, cached: int = 0) -> SearchResult:
    items = tuple(FoundItem(f"{n}", 0.5, None, None, n + 1, n + 1, None) for n in range(count))
    cost = InferenceCost(cache_hit_count=cached)
    return SearchResult(items, "model", replace(NO_SECONDS, total=seconds), COVERAGE, cost=cost)


FAILED = ModelUnavailable(model="next", why="it is away")


@pytest.mark.parametrize(
    ("live", "before", "name"),
    [
        (answer(0.3), answer(), "slow"),
        (answer(count=0), answer(), "empty"),
        (FAILED, answer(), "failed"),
        (answer(), answer(), ""),
        (answer(0.19), answer(), ""),
        (answer(0.3, cached=1), answer(cached=1), ""),
        (answer(count=0), answer(count=0), ""),
        (FAILED, FAILED, ""),
        (ModelMismatch(request="a", index="b"), answer(), ""),
    ],
)
def test_a_generation_is_worse_after_few_searches_or_never(
    live: SearchResult | TandemError, before: SearchResult | TandemError, name: str
) -> None:
    compared = ShadowComparison()
    whys = [compared.note("a", live, before) for _ in range(200)]
    assert [why.partition(":")[0] for why in whys[18:19]] == [name]
    assert not any(whys[:18])


@pytest.mark.parametrize(
    ("others", "between", "first"),
    [
        ("-" * 200, 1, None),  # one caller's word against another's
        ("-" * 40, 9, None),
        ("-" + "x" * 17 + "-" * 200, 1, None),
        ("-", 1, 21),  # an operator's one search
        ("x", 1, 19),
        ("x" * 30, 1, 19),
        ("-" + "x" * 30, 1, 40),  # once the others alone are clear
    ],
)
def test_no_callers_word_alone_is_taken(others: str, between: int, first: int | None) -> None:
    """One of two finds nothing in each search (x), only by the generation that serves."""
    compared, signs, count = ShadowComparison(), iter(others), 0
    for number in range(1, 401):
        live, caller = answer(count=0), "one"
        if number % (between + 1) == 0 and (sign := next(signs, "")):
            live, caller = answer(count=0 if sign == "x" else 3), "other"
        if compared.note(caller, live, answer()):
            count = count or number
    assert (count or None) == first


def test_equal_generations_of_noisy_times_are_kept_for_an_hour() -> None:
    """1,800 searches, of which each is over twice as slow as its pair by chance, 3 of 10 times.

    Also where a caller that asks as often finds each search slow.
    """
    kept = 0
    for seed in range(20):
        noise = random.Random(seed)
        compared, hostile = ShadowComparison(), ShadowComparison()
        for _ in range(1_800):
            times = noise.lognormvariate(0, 1), noise.lognormvariate(0, 1)
            pair = answer(times[0]), answer(times[1])
            hostile_whys = [hostile.note("b", *pair), hostile.note("a", answer(9), answer())]
            if compared.note("b", *pair) or any(hostile_whys):
                break
        else:
            kept += 1
    assert kept == 20


def test_callers_take_turns_under_any_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 100 s one searches 100 times a second, and another 2 times."""
    compared, now, counts = ShadowComparison(), 0.0, Counter[str]()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for tick in range(10_000):
        now = tick / 100
        for caller in ("often", "seldom") if tick % 50 == 7 else ("often",):
            counts[caller] += compared.takes(caller)
    assert counts == {"often": 50, "seldom": 50}


@pytest.mark.parametrize("is_due", [True, False])
async def test_an_alias_whose_searches_find_nothing_is_rolled_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_due: bool
) -> None:
    """After 19 of all searches, each repeated; once the hour is over, never."""
    monkeypatch.setattr(shadow, "_PAUSE_SECONDS", 0.0)
    async with two_generations(tmp_path) as (shards, orchestrator):
        for shard in shards:
            await shard.write(Upsert("photos", "model-a", [text_item("a")]), in_time())
            beside = Upsert("photos@2", "model-b", [image_item("a")], term=1)
            await shard.write(beside, in_time())
        book = orchestrator.router.book
        promoted = replace(
            book.record("photos"),
            serving="photos@2",
            previous="photos",
            promoted_time=time.time() - (0.0 if is_due else shadow.SHADOW_SECONDS + 1),
        )
        await book.put(promoted, in_time())
        with pytest.raises(ConsistencyTokenInvalid):  # the caller's fault, not the generation's
            await orchestrator.search(query_of(tokens=[OTHER_MAP_TOKEN]), in_time())
        compared = orchestrator.shadow.comparisons
        assert not compared
        for _ in range(25):
            assert not (await orchestrator.search(query_of(), in_time())).items
            if compared and (running := compared["photos"].running) is not None:
                await asyncio.wait([running], timeout=0.5)  # it waits for the keeper at last
        wanted = book.record("photos").wanted
        if is_due:
            assert wanted
            assert (wanted.kind, wanted.index_id, wanted.caller) == (ROLL_BACK, "photos", "shadow")
            assert wanted.why.startswith("empty: 19 of 19 searches")
        else:
            assert wanted is None
