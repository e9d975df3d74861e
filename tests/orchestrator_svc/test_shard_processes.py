"""Real index_svc processes behind one searcher: killed, paused, and read after writes."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tandem import errors
from tandem.contract.content import Modality, TextContent
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import SearchResult
from tandem.contract.search.answer_names import DegradationKind
from tandem.contract.search.ingest import IncomingItem
from tandem.contract.search.item_changes import ItemsRemoval
from tandem.contract.search.query import Depth, RankingRule, SearchQuery, StoredItem, WeightedPart
from tandem.remote.reranker import RemoteReranker
from tandem.remote.shard import RemoteShard
from tandem.search.assembly import Stages
from tandem.search.calls.guarded import GuardedReranker, GuardedShard
from tandem.search.contents.stored_items import StoredItems
from tandem.search.indexes.calibrations import Calibrations
from tandem.search.search import Searcher, SearchServices
from tandem.search.settings import SEARCH_DEFAULTS, SearchSettings
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token, read_tokens
from tandem.search.writes.ingest import Ingested, Ingester
from tandem.search.writes.removal import Remover
from tandem.search.writes.selected import SelectedItems
from tandem.search.writes.shard_writes import ShardWrites
from tests.support.chassis.longer_times import holds_with_longer_times
from tests.support.index_svc.shard_process import ShardProcess
from tests.support.orchestrator_svc.downstream import ingest, router_over, stack

MOST_SHARDS = 4
ITEM_COUNT = 60
# Of each of so many shards; a search returns all of them.
ITEM_COUNTS = {2: (20, 60), 3: (10, 30, 60), 4: (5, 10, 25, 60)}
# A search of 10 s waits so long for a shard that hangs, and a busy machine adds some.
SHARE_SECONDS, BUSY_SECONDS = 2.0, 0.9


@dataclass
class Shards:
    """An orchestrator's parts over real shards and a stub encoder."""

    processes: Sequence[ShardProcess]
    shard_map: ShardMap
    searcher: Searcher
    ingester: Ingester
    remover: Remover

    async def ingest(self, items: dict[str, str], request_id: str = "") -> Ingested:
        """Stores texts by item id."""
        incoming = [IncomingItem(each, TextContent(text)) for each, text in items.items()]
        ingested = await ingest(self.ingester, incoming, request_id=request_id)
        assert not any(ingested.outcomes)
        return ingested

    async def search(
        self,
        text: str = "0",
        *,
        tokens: Sequence[str] = (),
        is_full: bool = False,
        seconds: float = 60.0,
    ) -> SearchResult:
        """Finds texts, all of them if there are no more than a hundred."""
        query = SearchQuery(
            parts=(WeightedPart(TextContent(text)),),
            index_id="scenes",
            target_modality=Modality.TEXT,
            depth=Depth(100, 1, 100),
            rerank_disabled=True,
            content_included=False,
            consistency_tokens=tokens,
            full_coverage_required=is_full,
        )
        return await self.searcher.search(query, Deadline.after(seconds))

    async def search_by_item(self, item_id: str) -> SearchResult:
        """Finds texts near a stored one."""
        query = SearchQuery(
            parts=(WeightedPart(StoredItem(item_id)),),
            index_id="scenes",
            target_modality=Modality.TEXT,
            depth=Depth(100, 1, 100),
            content_included=False,
        )
        return await self.searcher.search(query, Deadline.after(10.0))


@asynccontextmanager
async def shards(
    folder: Path, count: int, settings: SearchSettings = SEARCH_DEFAULTS
) -> AsyncIterator[Shards]:
    """Runs index_svc processes; each takes half a second of CPU to start."""
    processes = [ShardProcess(folder / f"shard-{n}", n, count) for n in range(count)]
    try:
        async with AsyncExitStack() as opened:
            channels = [
                await opened.enter_async_context(await process.ready()) for process in processes
            ]
            # Only its encoder is used.
            encoder = (await opened.enter_async_context(stack(1))).stages.encoder
            shards = [GuardedShard(RemoteShard(each, n), n) for n, each in enumerate(channels)]
            rerankers = [
                GuardedReranker(RemoteReranker(each, n), n) for n, each in enumerate(channels)
            ]
            shard_map = ShardMap(count)
            services = SearchServices(
                encoder=encoder,
                shards=shards,
                readers=shards,
                scorers=rerankers,
                shard_map=shard_map,
                calibrations=Calibrations(shards[0]),
                settings=settings,
            )
            router = router_over(services, Stages(encoder, shards, rerankers))
            yield Shards(
                processes,
                shard_map,
                router.sets[0].searcher,
                Ingester(router, shards, shard_map, 10.0, encode_batch_count=2),
                Remover(
                    ShardWrites(router, shards, shard_map),
                    SelectedItems(router, StoredItems(shards, shard_map), shard_map),
                ),
            )
    finally:
        for process in processes:
            process.kill()


def ids(answer: SearchResult) -> list[str]:
    """Returns the items found, best first."""
    return [item.item_id for item in answer.items]


async def test_shards_are_lost_one_by_one(tmp_path: Path) -> None:
    """Four, three, two, one, none of four: the coverage is exact to the item, until there is none;
    and a paused shard is back as soon as it resumes.
    """
    # By threes to one angle: ties within and between shards, in the order of ids.
    items = {f"item-{n:02}": str(n // 3) for n in range(ITEM_COUNT)}
    async with shards(tmp_path, MOST_SHARDS) as running:
        await running.ingest(items)
        owner = {each: running.shard_map.owner("scenes", each) for each in items}
        assert set(owner.values()) == set(range(MOST_SHARDS))

        whole = await running.search()
        assert ids(whole) == sorted(items)
        assert whole.coverage.covered_item_count == whole.coverage.item_count == ITEM_COUNT

        async def check(factor: float) -> None:
            running.processes[2].pause()
            try:
                late = await running.search(seconds=2.0 * factor)
            finally:
                running.processes[2].resume()
            assert ids(late) == [each for each in sorted(items) if owner[each] != 2]
            assert late.coverage.missing_shards == {2: "DEADLINE_EXCEEDED"}

        # After 3 s an unanswered ping ends the connection, and it is no more late but gone.
        await holds_with_longer_times(check, factors=(1, 2, 2.5))
        assert ids(await running.search(is_full=True)) == sorted(items)

        running.processes[3].kill()
        for _ in range(5):
            three = await running.search()
            kept = [each for each in sorted(items) if owner[each] != 3]
            assert ids(three) == kept
            assert three.coverage.answered_shard_count == 3
            assert three.coverage.covered_item_count == len(kept)
            assert three.coverage.item_count == ITEM_COUNT
        with pytest.raises(errors.ShardsMissing, match="3 of 4"):
            await running.search(is_full=True)

        for number in (0, 1):
            running.processes[number].kill()
        one = await running.search()
        assert ids(one) == [each for each in sorted(items) if owner[each] == 2]
        assert set(one.coverage.missing_shards) == {0, 1, 3}

        running.processes[2].kill()
        async with asyncio.timeout(90):
            with pytest.raises(errors.ShardsMissing, match="0 of 4"):
                await running.search(seconds=240.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "lost"), [(count, lost) for count in ITEM_COUNTS for lost in range(count)]
)
async def test_any_one_shard_may_hang_and_end(tmp_path: Path, count: int, lost: int) -> None:
    """Be it the largest: every search finds the others' items and says so, from the first on."""
    async with shards(tmp_path, count) as running:
        owned = running.shard_map.group("scenes", (f"item-{number}" for number in range(600)))
        stored = {n: owned[n][:most] for n, most in enumerate(ITEM_COUNTS[count])}
        for item_ids in stored.values():
            await running.ingest(dict.fromkeys(item_ids, "0"))
        kept = sorted(each for n, item_ids in stored.items() if n != lost for each in item_ids)
        assert not (await running.search()).degradations

        running.processes[lost].pause()
        start_time = time.monotonic()
        answers = [await running.search(seconds=10.0)]
        first_seconds = time.monotonic() - start_time
        answers += [await running.search(seconds=10.0) for _ in range(4)]
        running.processes[lost].kill()
        answers += [await running.search(seconds=10.0) for _ in range(5)]
        # A query that is itself on the lost shard is the one search that cannot be made.
        assert ids(await running.search_by_item(kept[0])) == kept
        with pytest.raises(errors.ServiceUnavailable, match=f"index-{lost}"):
            await running.search_by_item(stored[lost][0])

    assert first_seconds < SHARE_SECONDS + BUSY_SECONDS
    for answer in answers:
        assert ids(answer) == kept
        assert answer.degradations == (DegradationKind.SHARDS_MISSING,)
        assert set(answer.coverage.missing_shards) == {lost}
        assert answer.coverage.covered_item_count == len(kept)


async def test_a_shard_that_hangs_is_noticed_and_costs_later_searches_no_time(
    tmp_path: Path,
) -> None:
    """Its connection is dropped after unanswered pings, long before the searches' deadlines, and
    opened again once it resumes.
    """
    async with shards(tmp_path, 3, SearchSettings(retrieval_wait_seconds=100.0)) as running:
        await running.ingest({f"item-{n}": "0" for n in range(20)})
        running.processes[1].pause()

        # Pings end it: it may be late for 100 s here, and a late one has another reason.
        async with asyncio.timeout(90):
            first = await running.search(seconds=200.0)
            second = await running.search(seconds=200.0)
        for answer in (first, second):
            assert list(answer.coverage.missing_shards.values()) == ["SERVICE_UNAVAILABLE"]

        running.processes[1].resume()
        async with asyncio.timeout(90):
            while (await running.search()).coverage.missing_shards:  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(0.05)


async def test_a_write_is_read_by_its_token_and_stored_once_by_its_request_id(
    tmp_path: Path,
) -> None:
    """Through real stores: sequences, first answers, and a request id for another write."""
    async with shards(tmp_path, 2) as running:
        first = await running.ingest({f"item-{n}": "0" for n in range(20)}, "same")
        token = make_token(first.sequences, running.shard_map)
        assert len(ids(await running.search(tokens=[token]))) == 20

        removal = await running.remover.remove(
            ItemsRemoval(
                index_id="scenes", item_ids=[f"item-{n}" for n in range(20)], request_id="other"
            ),
            Deadline.after(60),
        )
        assert removal.removed_count == 20
        again = await running.ingest({f"item-{n}": "0" for n in range(20)}, "same")
        assert again.sequences == first.sequences

        tokens = [token, removal.consistency_token]
        assert ids(await running.search(tokens=tokens)) == []
        with pytest.raises(errors.RequestIdReused):
            await running.remover.remove(
                ItemsRemoval(index_id="scenes", item_ids=["item-0"], request_id="same"),
                Deadline.after(60),
            )

        sequences = read_tokens([removal.consistency_token], running.shard_map)
        ahead = make_token({0: sequences[0] + 1}, running.shard_map)

        async def check(factor: float) -> None:
            with pytest.raises(errors.SequenceNotReached):
                await running.search(tokens=[ahead], seconds=factor)

        await holds_with_longer_times(check)


async def test_an_index_is_removed_from_every_shard_and_can_be_made_again(tmp_path: Path) -> None:
    """Through real stores; a second removal finds none, and a killed shard is reported."""
    items = {f"item-{n:02}": "0" for n in range(ITEM_COUNT)}
    async with shards(tmp_path, 2) as running:
        await running.ingest(items)

        removal = await running.remover.remove_index("scenes", Deadline.after(10))

        assert (removal.removed_count, removal.is_complete) == (ITEM_COUNT, True)
        assert set(read_tokens([removal.consistency_token], running.shard_map)) == {0, 1}
        with pytest.raises(errors.IndexNotFound):
            await running.search()
        with pytest.raises(errors.IndexNotFound):
            await running.remover.remove_index("scenes", Deadline.after(10))

        await running.ingest(items)
        assert len(ids(await running.search())) == ITEM_COUNT
        running.processes[1].kill()
        with pytest.raises(errors.ServiceUnavailable, match="1 of 2 shards failed"):
            await running.remover.remove_index("scenes", Deadline.after(10))


async def test_stored_items_are_queries_and_compared_with_each_other(tmp_path: Path) -> None:
    """Over real shards: an item's encoding as it is stored, and the hits' embeddings."""
    items = {f"item-{n:02}": str(n) for n in range(ITEM_COUNT)}
    async with shards(tmp_path, 2) as running:
        await running.ingest(items)
        query = SearchQuery(
            parts=(
                WeightedPart(StoredItem("item-10")),
                WeightedPart(StoredItem("item-20")),
            ),
            index_id="scenes",
            target_modality=Modality.TEXT,
            depth=Depth(ITEM_COUNT, 1, 5),
            ranking=RankingRule(duplicate_similarity=math.cos(math.radians(4.9))),
        )

        answer = await running.searcher.search(query, Deadline.after(10))

        # Between the two; then each the nearest that is 5 degrees off all before.
        assert ids(answer)[0] == "item-15"
        assert sorted(ids(answer)) == ["item-05", "item-10", "item-15", "item-20", "item-25"]
        gone = replace(query, parts=(WeightedPart(StoredItem("item-99")),))
        with pytest.raises(errors.ItemNotFound):
            await running.searcher.search(gone, Deadline.after(10))
