"""Adds, deletes, searches, filters and rebuilds concurrently on a real index_svc.

`make test` runs some seconds; TANDEM_STORM_SECONDS=60 TANDEM_STORM_ITEMS=100000 is the full run,
which also compares the searches' p99 during rebuilds with that before.
"""

import asyncio
import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tandem.contract.content import Encoding, ImageContent, ImageTokens
from tandem.contract.filtering.attribute_wire import filter_to_proto
from tandem.contract.filtering.filters import OneOf
from tandem.stages.items import ItemRecord
from tandem.v1 import content_pb2
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.support.index_svc.encoded_items import INDEX_ID, encoded_item
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import FINGERPRINT

SECONDS = float(os.environ.get("TANDEM_STORM_SECONDS", "3"))
ITEM_COUNT = int(os.environ.get("TANDEM_STORM_ITEMS", "3000"))
IS_FULL = SECONDS >= 60
DIMENSION = 64
INDEX_TYPE = "IVF64,SQ8"
K = 10
SEARCHER_COUNT = 3
BATCH_COUNT = 20
TOKENS = ImageTokens(np.zeros((1, 2), dtype=np.float16))
STYLES = ("plain", "painted")


@dataclass
class Storm:
    """Counts what was done, and collects failures."""

    index: IndexServiceStub
    admin: IndexAdminServiceStub
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))
    is_over: bool = False
    is_rebuilding: bool = False
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    counts: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """Deleted, and acknowledged; ids are never used again."""

    def vector(self) -> np.ndarray:
        vector = self.rng.standard_normal(DIMENSION)
        return (vector / np.linalg.norm(vector)).astype(np.float32)

    def item(self, item_id: str) -> ItemRecord:
        style = STYLES[int(item_id.rpartition("-")[2]) % 2]
        encoding = Encoding(self.vector(), TOKENS)
        return ItemRecord(item_id, ImageContent(b"x"), encoding, {"style": style})

    async def upsert(self, items: list[ItemRecord]) -> None:
        await self.index.UpsertItems(
            pb.UpsertItemsRequest(
                index_id=INDEX_ID, model_fingerprint=FINGERPRINT, items=map(encoded_item, items)
            )
        )

    async def find(self, query: np.ndarray, style: str = "") -> list[str]:
        gone = set(self.gone)  # before the search begins
        filter_ = filter_to_proto(OneOf("style", (style,))) if style else None
        start_time, was_rebuilding = time.perf_counter(), self.is_rebuilding
        response = await self.index.SearchEmbeddings(
            pb.SearchEmbeddingsRequest(
                index_id=INDEX_ID,
                model_fingerprint=FINGERPRINT,
                queries=[embedding_to_proto(query)],
                modality=content_pb2.MODALITY_IMAGE,
                retrieve_k=K,
                filter=filter_,
            )
        )
        if was_rebuilding == self.is_rebuilding and not style:
            self.seconds[was_rebuilding].append(time.perf_counter() - start_time)
        found = [hit.item_id for hit in response.hit_lists[0].hits]
        if resurrected := gone.intersection(found):
            self.faults.append(f"found after their deletion: {sorted(resurrected)}")
        if len(found) != K or len(set(found)) != K:
            self.faults.append(f"{len(found)} hits, {len(set(found))} different")
        return found

    async def search(self) -> None:
        await self.find(self.vector())

    async def search_filtered(self) -> None:
        style = STYLES[int(self.rng.integers(2))]
        found = await self.find(self.vector(), style)
        wrong = [one for one in found if STYLES[int(one.rpartition("-")[2]) % 2] != style]
        if wrong:
            self.faults.append(f"not {style}: {wrong}")
        await asyncio.sleep(0.01)

    async def change(self, numbers: Iterator[int]) -> None:
        """Adds items that must be found at once, and deletes them."""
        items = [self.item(f"new-{next(numbers)}") for _ in range(BATCH_COUNT)]
        await self.upsert(items)
        found = await self.find(items[0].encoding.embedding)
        if found[0] != items[0].item_id:
            self.faults.append(f"not found after its upsert: {items[0].item_id}")
        item_ids = [item.item_id for item in items[: BATCH_COUNT // 2]]
        await self.index.DeleteItems(pb.DeleteItemsRequest(index_id=INDEX_ID, item_ids=item_ids))
        self.gone.update(item_ids)
        await self.find(items[0].encoding.embedding)

    async def rebuild(self) -> None:
        request = admin_pb.RebuildIndexRequest(
            index_id=INDEX_ID, modality=content_pb2.MODALITY_IMAGE
        )
        self.is_rebuilding = True
        await self.admin.RebuildIndex(request)
        await asyncio.sleep(0.3)
        while (await self.activity()) and not self.is_over:  # noqa: ASYNC110 (another process's)
            await asyncio.sleep(0.05)
        self.is_rebuilding = False
        await asyncio.sleep(0.5)

    async def activity(self) -> str:
        response = await self.admin.DescribeIndexes(
            admin_pb.DescribeIndexesRequest(index_id=INDEX_ID)
        )
        return "".join(one.activity for one in response.descriptions)

    async def repeat(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        while not self.is_over:
            try:
                await act()
                self.counts[name] = self.counts.get(name, 0) + 1
            except Exception as error:
                self.faults.append(f"{name}: {error!r}")


@pytest.fixture
async def storm(tmp_path: Path) -> AsyncIterator[Storm]:
    settings = {"FAISS_TYPE": INDEX_TYPE, "STORE_MAP_BYTES": 4 << 30}
    async with running(tmp_path / "shard", settings=settings) as (_, channel):
        storm = Storm(IndexServiceStub(channel), IndexAdminServiceStub(channel))
        for start in range(0, ITEM_COUNT, 250):
            numbers = range(start, min(ITEM_COUNT, start + 250))
            await storm.upsert([storm.item(f"old-{number}") for number in numbers])
        yield storm


@pytest.mark.timeout(SECONDS + 240)
async def test_a_storm_of_calls_leaves_no_fault(storm: Storm) -> None:
    """No call fails, no deleted item is found, and no acknowledged item is missed."""
    numbers = itertools.count()
    works = [
        *[storm.repeat("searches", storm.search) for _ in range(SEARCHER_COUNT)],
        storm.repeat("filtered", storm.search_filtered),
        storm.repeat("changes", lambda: storm.change(numbers)),
        storm.repeat("rebuilds", storm.rebuild),
    ]

    async def end() -> None:
        await asyncio.sleep(SECONDS)
        while not all(storm.seconds.values()):  # noqa: ASYNC110 (between rebuilds, and during)
            await asyncio.sleep(0.1)
        storm.is_over = True

    await asyncio.gather(*works, end())

    calm, stormy = (np.percentile(storm.seconds[key], (50, 99)) * 1e3 for key in (False, True))
    figures = {
        "seconds": SECONDS,
        "items": ITEM_COUNT,
        **storm.counts,
        "p50_p99_ms_between_rebuilds": [round(each, 2) for each in calm.tolist()],
        "p50_p99_ms_during_rebuilds": [round(each, 2) for each in stormy.tolist()],
    }
    print(json.dumps(figures))
    assert storm.faults == []
    assert min(storm.counts[name] for name in ("searches", "filtered", "changes", "rebuilds")) > 0
    if IS_FULL:
        assert stormy[1] <= 2 * calm[1]
