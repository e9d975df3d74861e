"""No score is ever of a version of an item that was written over before the search began.

A real servicer behind a real server, a real item store, and a model whose logit for a pair is the
number of the write that made the candidate. The test says when each read of the store and each
inference happens, so that writes fall between any two of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandem.chassis.capacity.caller_turns import CallerTurns
from tandem.contract.content import ImageTokens
from tandem.contract.inference_cost import InferenceCost
from tandem.local.item_store.item_store import ItemStore
from tandem.local.reranking.candidate_reader import CandidateReader
from tandem.local.reranking.reranker import ModelReranker
from tandem.model_io.inference.joined_scoring import JoinedScoring
from tandem.model_io.inference.model_runner import Inferred
from tandem.model_io.inference.served_model import ServedModel
from tandem.stages.candidate_store import StoredTokens
from tandem.stages.item_write import Delete, Upsert
from tandem.v1 import rerank_service_pb2 as pb
from tandem.v1.rerank_service_pb2_grpc import RerankServiceStub
from tests.support.repository.made_manifest import made_manifest
from tests.support.rerank_svc.served_reranker import item, request, serving, text_tokens

FINGERPRINT = "scripted"
TIMEOUT_SECONDS = 20.0
MANIFEST = made_manifest(fingerprint=FINGERPRINT)
ITEM_IDS = ("a", "b", "c")
# Write numbers stand in float16 tokens, which hold integers up to here exactly.
MAX_WRITE_COUNT = 2048


class SteppedReads(Executor):
    """Runs what is submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], None]] = deque()
        self.submitted = asyncio.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        outcome: Future[Any] = Future()

        def run() -> None:
            if outcome.set_running_or_notify_cancel():
                try:
                    outcome.set_result(fn(*args, **kwargs))
                except Exception as error:
                    outcome.set_exception(error)

        self.waiting.append(run)
        self.submitted.set()
        return outcome

    def step(self) -> None:
        if self.waiting:
            self.waiting.popleft()()


class SteppedModel:
    """Gives a pair's logit, the number in its image tokens, when the test says so."""

    def __init__(self) -> None:
        self.manifest = MANIFEST
        self.joined = JoinedScoring()
        self.version = 1
        self.waiting: deque[asyncio.Event] = deque()
        self.pair_count = 0

    def at(self, _: int) -> "SteppedModel":
        return self

    async def match_logits(
        self, texts: Sequence[object], images: Sequence[NDArray[np.float16]], _: float
    ) -> Inferred[NDArray[np.float32]]:
        may_go = asyncio.Event()
        self.waiting.append(may_go)
        await may_go.wait()
        self.pair_count += len(texts)
        logits = np.array([tokens[0, 0] for tokens in images], dtype=np.float32)
        return Inferred(logits, InferenceCost(pair_count=len(texts)))

    def is_proven(self, _: str) -> bool:
        return False

    def step(self) -> None:
        if self.waiting:
            self.waiting.popleft().set()


@dataclass(slots=True)
class Search:
    """A call in progress, and every state of each item since it began: a write, or None."""

    item_ids: Sequence[str]
    call: "grpc.aio.UnaryUnaryCall[pb.ScoreCandidatesRequest, pb.ScoreCandidatesResponse]"
    states: dict[str, set[int | None]]

    async def check(self) -> int:
        """Returns how many scores there were; fails where one is of no state since it began."""
        try:
            response = await self.call
        except asyncio.CancelledError:
            return 0
        for item_id, score in zip(self.item_ids, response.scores, strict=True):
            found = int(score.match_logit) if score.HasField("match_logit") else None
            assert found in self.states[item_id], (item_id, found, self.states[item_id])
        return len(self.item_ids)


class Shard:
    """A store, a rerank_svc that reads it, and searches in progress."""

    def __init__(
        self, store: ItemStore, reads: SteppedReads, model: SteppedModel, stub: RerankServiceStub
    ) -> None:
        self.store, self.reads, self.model, self.stub = store, reads, model, stub
        self.index_id = ""
        self.write_count = 0
        self.now: dict[str, int | None] = {}
        self.searches: list[Search] = []

    def begin_anew(self) -> None:
        """Continues in a new index."""
        self.index_id = f"index-{self.write_count}"
        self.now = dict.fromkeys(ITEM_IDS)
        self.searches = []
        self.upsert(ITEM_IDS[0])

    def upsert(self, item_id: str) -> None:
        self.write_count += 1
        tokens = ImageTokens(np.array([[self.write_count]], dtype=np.float16))
        self.store.apply([Upsert(self.index_id, FINGERPRINT, [item(item_id, tokens)])])
        self._note(item_id, self.write_count)

    def delete(self, item_id: str) -> None:
        self.store.apply([Delete(self.index_id, [item_id])])
        self._note(item_id, None)

    def _note(self, item_id: str, state: int | None) -> None:
        self.now[item_id] = state
        for search in self.searches:
            search.states[item_id].add(state)

    async def search(self, query: int, item_ids: Sequence[str]) -> None:
        """Begins a search; returns when it wants to read."""
        self.reads.submitted.clear()
        message = request(item_ids, FINGERPRINT, text_tokens(2, 10 + query, 3), self.index_id)
        call = self.stub.ScoreCandidates(message, timeout=TIMEOUT_SECONDS)
        states = {item_id: {state} for item_id, state in self.now.items()}
        self.searches.append(Search(item_ids, call, states))
        await asyncio.wait_for(self.reads.submitted.wait(), TIMEOUT_SECONDS)

    async def settle(self) -> None:
        """Lets every task run until it waits."""
        for _ in range(8):
            await asyncio.sleep(0)

    async def finish(self) -> int:
        """Lets every task run to its end and checks it; returns how many scores there were."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not all(search.call.done() for search in self.searches):
                self.reads.step()
                self.model.step()
                await asyncio.sleep(0.0001)
        return sum([await search.check() for search in self.searches])

    async def play(self, steps: Sequence[tuple[str, Any]]) -> int:
        """Does the steps in order; returns how many scores were checked."""
        self.begin_anew()
        for name, argument in steps:
            match name:
                case "upsert":
                    self.upsert(argument)
                case "delete":
                    self.delete(argument)
                case "search":
                    await self.search(*argument)
                case "read":
                    self.reads.step()
                case "infer":
                    self.model.step()
                case "cancel" if self.searches:
                    self.searches[argument % len(self.searches)].call.cancel()
            await self.settle()
        return await self.finish()


@contextmanager
def shard_at(path: Path) -> Iterator[tuple[Shard, asyncio.Runner]]:
    """Serves a shard, and yields it with the loop it lives in."""
    store = ItemStore.open(path, 0, 1, map_bytes=64 << 20)
    reads, model = SteppedReads(), SteppedModel()
    turns = CallerTurns(reads, 1_000)  # so that each read is there to be stepped
    candidates = CandidateReader(lambda: store, turns, model.manifest.fingerprint)
    reranker = ModelReranker(cast(ServedModel, model), candidates, turns, cache_bytes=1 << 20)

    async def start() -> tuple[AsyncExitStack, Shard]:
        exits = AsyncExitStack()
        checking = asyncio.create_task(reranker.check())
        while not checking.done():
            reads.step()
            model.step()
            await asyncio.sleep(0)
        stub = await exits.enter_async_context(serving(reranker, warm=False))
        return exits, Shard(store, reads, model, stub)

    with asyncio.Runner() as runner:
        exits, shard = runner.run(start())
        try:
            yield shard, runner
        finally:
            runner.run(exits.aclose())
            store.close()


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shard, asyncio.Runner]]:
    with shard_at(tmp_path_factory.mktemp("stale") / "shard") as served:
        yield served


ITEMS = st.sampled_from(ITEM_IDS)
STEPS = st.one_of(
    st.tuples(st.just("upsert"), ITEMS),
    st.tuples(st.just("delete"), ITEMS),
    st.tuples(
        st.just("search"),
        st.tuples(st.integers(0, 1), st.lists(ITEMS, min_size=1, max_size=3, unique=True)),
    ),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("infer"), st.none()),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
)


@settings(max_examples=150)
@given(steps=st.lists(STEPS, min_size=4, max_size=24))
def test_no_search_gets_the_score_of_an_older_version(
    shard: tuple[Shard, asyncio.Runner], steps: list[tuple[str, Any]]
) -> None:
    """Of any interleaving of writes, reads, inferences and searches that come and go."""
    served, runner = shard
    runner.run(served.play(steps))
    assert served.write_count < MAX_WRITE_COUNT


WRITTEN_OVER = [
    ("search", (0, ["a"])),
    *[("read", None)] * 2,
    ("infer", None),
    ("upsert", "a"),
    ("search", (0, ["a"])),
]


def test_the_same_search_again_costs_no_inference_until_the_item_is_written(
    shard: tuple[Shard, asyncio.Runner],
) -> None:
    """So there is a cache that could have been stale."""
    served, runner = shard
    before = served.model.pair_count

    runner.run(served.play([("search", (0, ["a"])), *[("read", None)] * 2, ("infer", None)]))
    served.searches = []
    runner.run(served.search(0, ["a"]))
    runner.run(served.finish())
    assert served.model.pair_count == before + 1

    runner.run(served.play(WRITTEN_OVER))
    assert served.model.pair_count == before + 3


# A control of the tests, not of the product.
@pytest.mark.slow
def test_a_cache_that_ignored_versions_would_be_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive control: the same check fails where the store says that an item never changes."""
    read_versions, read_tokens = ItemStore.read_versions, ItemStore.read_stored_tokens

    def one_version(*asked: Any) -> list[int | None]:
        return [None if version is None else 1 for version in read_versions(*asked)]

    def tokens_of_one_version(*asked: Any) -> list[StoredTokens | None]:
        found = read_tokens(*asked)
        return [None if stored is None else StoredTokens(stored.tokens, 1) for stored in found]

    monkeypatch.setattr(ItemStore, "read_versions", one_version)
    monkeypatch.setattr(ItemStore, "read_stored_tokens", tokens_of_one_version)
    with (
        shard_at(tmp_path / "shard") as (served, runner),
        pytest.raises(AssertionError, match="'a'"),
    ):
        runner.run(served.play(WRITTEN_OVER))
