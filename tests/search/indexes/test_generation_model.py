"""Compares generations of an index with a plain dictionary over any sequence of operations.

`make test` runs a few examples; TANDEM_GENERATION_EXAMPLES=2000 is the full run.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tandem.errors import GenerationRefused
from tandem.search.indexes.kept_generations import DROP, PROMOTE, ROLL_BACK
from tests.support.orchestrator_svc.kept_index import Orchestrating, soon
from tests.support.orchestrator_svc.local_shards import local_shards

T = TypeVar("T")

EXAMPLE_COUNT = int(os.environ.get("TANDEM_GENERATION_EXAMPLES", "4"))
STEP_COUNT = 50 if EXAMPLE_COUNT > 100 else 15
FASTER = {
    "alias_book._POLL_SECONDS": 0.02,
    "keeper._POLL_SECONDS": 0.01,
    "keeper.LEASE_SECONDS": 0.1,
    "kept_generations._TICK_SECONDS": 0.01,
    "kept_generations._HEARTBEAT_SECONDS": 0.03,
    "generations._POLL_SECONDS": 0.01,
    "follower._IDLE_SECONDS": 0.01,
}
ITEM_IDS = [f"item-{number}" for number in range(20)]


class GenerationModel(RuleBasedStateMachine):
    """Holds two orchestrators over two shards, and what the index must have."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.TemporaryDirectory()
        self._opened = AsyncExitStack()
        opening = self._opened.enter_async_context(local_shards(Path(self._folder.name)))
        self._shards = self._run(opening)
        self._texts: dict[str, str] = {}
        self._serving, self._other, self._previous, self._number = "photos", "", "", 0
        self._made = 1
        self._kept = [self._begun(), self._begun()]
        self.write(["item-0"])

    @rule(item_ids=st.lists(st.sampled_from(ITEM_IDS), min_size=1, max_size=5))
    def write(self, item_ids: list[str]) -> None:
        for item_id in item_ids:
            self._number += 1
            self._run(self._kept[0].write(item_id, f"text {self._number}"))

    @rule(item_id=st.sampled_from(ITEM_IDS))
    def delete(self, item_id: str) -> None:
        self._run(self._kept[0].write(item_id, None))

    @precondition(lambda self: self._other)
    @rule(item_id=st.sampled_from(ITEM_IDS))
    def write_after_the_scan(self, item_id: str) -> None:
        self._run(self._kept[0].until_scanned())
        self.write([item_id])

    @rule(which=st.sampled_from([0, 1]), is_killed_after=st.floats(0, 0.3))
    def crash(self, which: int, is_killed_after: float) -> None:
        self._run(asyncio.sleep(is_killed_after))
        self._run(self._kept[which].end())
        self._kept[which] = self._begun()

    @rule(which=st.sampled_from([0, 1]))
    def create(self, which: int) -> None:
        making = self._kept[which].generations.create("photos", soon())
        if self._other:
            with pytest.raises(GenerationRefused):
                self._run(making)
            return
        self._made += 1
        self._other, self._previous = self._run(making).index_id, ""
        assert self._other == f"photos@{self._made}"

    @precondition(lambda self: self._other)
    @rule(which=st.sampled_from([0, 1]), is_crashing=st.booleans())
    def promote(self, which: int, is_crashing: bool) -> None:
        self._run(self._kept[which].until_scanned())
        self._ask(which, PROMOTE, is_crashing=is_crashing)
        self._serving, self._other = self._other, self._serving
        self._previous = self._other

    @precondition(lambda self: self._other)
    @rule(which=st.sampled_from([0, 1]), is_crashing=st.booleans())
    def roll_back(self, which: int, is_crashing: bool) -> None:
        if not self._previous:
            with pytest.raises(GenerationRefused):
                self._run(self._kept[which].ask(ROLL_BACK))
            return
        self._ask(which, ROLL_BACK, is_crashing=is_crashing)
        self._serving, self._other, self._previous = self._other, self._serving, ""

    @precondition(lambda self: self._other)
    @rule(which=st.sampled_from([0, 1]), is_crashing=st.booleans(), chance=st.integers(0, 3))
    def drop(self, which: int, is_crashing: bool, chance: int) -> None:
        if chance:  # so that most generations get to a promotion
            return
        with pytest.raises(GenerationRefused):
            self._run(self._kept[which].ask(DROP, self._serving))
        self._ask(which, DROP, self._other, is_crashing=is_crashing)
        assert self._run(self._kept[0].stored(self._other)) == {}
        self._other = self._previous = ""

    @invariant()
    def serves_what_the_dictionary_holds(self) -> None:
        record = self._run(self._kept[0].record())
        assert record.serving == self._serving
        assert self._run(self._kept[0].stored(self._serving)) == self._texts

    def teardown(self) -> None:
        for each in self._kept:
            self._run(each.end())
        self._run(self._opened.aclose())
        self._loop.close()
        self._folder.cleanup()

    def _begun(self) -> Orchestrating:
        made = Orchestrating(self._shards, self._texts)
        self._run(made.begin())
        return made

    def _run(self, work: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(work, 60))

    def _ask(self, which: int, kind: str, index_id: str = "photos", *, is_crashing: bool) -> None:
        """Asks, and ends the other orchestrator, which may be the keeper, in the middle."""

        async def ask() -> None:
            asking = asyncio.create_task(self._kept[which].ask(kind, index_id))
            if is_crashing:
                await asyncio.sleep(0.05)
                await self._kept[1 - which].end()
            await asking

        self._run(ask())
        if is_crashing:
            self._kept[1 - which] = self._begun()


@pytest.mark.timeout(0 if EXAMPLE_COUNT > 100 else 240)
def test_generations_equal_a_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations include creation, promotion, rollback, drop, and the end of any keeper."""
    for name, seconds in FASTER.items():
        monkeypatch.setattr(f"tandem.search.indexes.{name}", seconds)
    run_state_machine_as_test(
        GenerationModel,
        settings=settings(max_examples=EXAMPLE_COUNT, stateful_step_count=STEP_COUNT),
    )
