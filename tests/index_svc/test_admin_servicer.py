"""Calls a real index_svc as an operator, and reads its recall metrics."""

import asyncio
import math
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tandem.chassis.calls.status import error_from_rpc
from tandem.contract.content import Encoding, ImageContent, ImageTokens
from tandem.errors import IndexNotFound, IndexTypeInvalid, TandemError
from tandem.stack.free_ports import free_ports
from tandem.stages.items import ItemRecord
from tandem.v1 import content_pb2
from tandem.v1 import index_admin_service_pb2 as admin_pb
from tandem.v1 import index_service_pb2 as pb
from tandem.v1.index_admin_service_pb2_grpc import IndexAdminServiceStub
from tandem.v1.index_service_pb2_grpc import IndexServiceStub
from tandem.wire import embedding_to_proto
from tests.support.index_svc.encoded_items import INDEX_ID, upsert_request
from tests.support.index_svc.shard_process import running
from tests.support.item_store.made_items import FINGERPRINT, text_item, unit_vector

DIMENSION = 16
ITEM_COUNT = 1_000
WINDOW_SECONDS = 4.0
FLOOR = 0.95
TOKENS = ImageTokens(np.zeros((1, 2), dtype=np.float16))


@dataclass(frozen=True)
class Served:
    """Holds a shard with a thousand images and a thousand texts, and its metrics' address."""

    index: IndexServiceStub
    admin: IndexAdminServiceStub
    metrics_url: str

    async def tune(self, modality: content_pb2.Modality, **tuning: object) -> None:
        await self.admin.TuneIndex(
            admin_pb.TuneIndexRequest(
                index_id=INDEX_ID,
                modality=modality,
                tuning=admin_pb.IndexTuning(**tuning),  # type: ignore[arg-type]
            )
        )

    async def description(self, modality: content_pb2.Modality) -> admin_pb.IndexDescription:
        response = await self.admin.DescribeIndexes(
            admin_pb.DescribeIndexesRequest(index_id=INDEX_ID)
        )
        [found] = [one for one in response.descriptions if one.modality == modality]
        return found

    async def until_built(self, modality: content_pb2.Modality, index_type: str) -> None:
        end_time = time.monotonic() + 60
        while (await self.description(modality)).index_type != index_type:
            assert time.monotonic() < end_time, await self.description(modality)
            await asyncio.sleep(0.05)

    async def search(self, seed: int, modality: content_pb2.Modality) -> pb.SearchPath:
        response = await self.index.SearchEmbeddings(
            pb.SearchEmbeddingsRequest(
                index_id=INDEX_ID,
                model_fingerprint=FINGERPRINT,
                queries=[embedding_to_proto(unit_vector(seed, DIMENSION))],
                modality=modality,
                query_modality=content_pb2.MODALITY_TEXT,
                retrieve_k=10,
            )
        )
        return response.path

    def recall(self) -> dict[str, float]:
        """Returns the exported recall by direction."""
        with urllib.request.urlopen(self.metrics_url, timeout=60) as response:
            return {
                sample.labels["direction"]: sample.value
                for family in text_string_to_metric_families(response.read().decode())
                for sample in family.samples
                if sample.name == "tandem_index_live_recall_ratio"
            }


def image_item(number: int) -> ItemRecord:
    encoding = Encoding(unit_vector(number, DIMENSION), TOKENS)
    return ItemRecord(f"image-{number}", ImageContent(b"x"), encoding)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    [metrics_port] = free_ports(1)
    settings = {
        "METRICS_PORT": metrics_port,
        "RECALL_SAMPLE_SHARE": 1.0,
        "RECALL_WINDOW_SECONDS": WINDOW_SECONDS,
        "RECALL_FLOOR": FLOOR,
    }
    async with running(tmp_path / "shard", settings=settings) as (_, channel):
        index = IndexServiceStub(channel)
        for start in range(0, ITEM_COUNT, 125):
            numbers = range(start, start + 125)
            items = [image_item(number) for number in numbers]
            items += [text_item(f"text-{n}", 5_000 + n, DIMENSION) for n in numbers]
            await index.UpsertItems(upsert_request(items))
        url = f"http://127.0.0.1:{metrics_port}/metrics"
        yield Served(index, IndexAdminServiceStub(channel), url)


async def refused(call: grpc.aio.UnaryUnaryCall) -> TandemError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return error_from_rpc(caught.value, "index")


async def test_a_lower_nprobe_lowers_the_live_recall_of_its_direction(served: Served) -> None:
    """It falls below the floor within a window, in one direction only, and recovers."""
    image, text = content_pb2.MODALITY_IMAGE, content_pb2.MODALITY_TEXT
    for modality in (image, text):
        await served.tune(modality, index_type="IVF32,Flat", parameters={"nprobe": 32})
    for modality in (image, text):
        await served.until_built(modality, "IVF32,Flat")

    async def search_for_a_window() -> dict[str, float]:
        end_time = time.monotonic() + WINDOW_SECONDS
        seed = 10_000
        while time.monotonic() < end_time:
            await served.search(seed, image)
            await served.search(seed, text)
            seed += 1
            await asyncio.sleep(0.02)
        measured = served.recall()
        # A busy machine measures late; what it measures is no lower.
        while any(math.isnan(measured[f"text_to_{target}"]) for target in ("image", "text")):
            assert time.monotonic() < end_time + 30, measured
            await served.search(seed, image)
            await served.search(seed, text)
            measured = served.recall()
        return measured

    before = await search_for_a_window()
    assert before["text_to_image"] == before["text_to_text"] == 1

    await served.tune(image, index_type="IVF32,Flat", parameters={"nprobe": 1})
    lowered = await search_for_a_window()
    assert lowered["text_to_image"] < FLOOR
    assert lowered["text_to_text"] == 1
    described = await served.description(image)
    assert described.live_recalls["text_to_image"].recall < FLOOR
    assert dict(described.parameters) == {"nprobe": 1}
    shard = await served.index.DescribeShardIndex(pb.DescribeShardIndexRequest(index_id=INDEX_ID))
    texts, images = shard.parts
    assert (images.index_type, dict(images.parameters)) == ("IVF32,Flat", {"nprobe": 1})
    assert images.list_imbalance > 1
    [live] = images.live_recalls
    assert (live.query_modality, live.target_modality) == (text, image)
    assert live.recall < FLOOR
    assert live.search_count > 0
    assert all(each.recall == 1 for each in texts.live_recalls)

    await served.tune(image, index_type="IVF32,Flat", parameters={"nprobe": 32})
    assert (await search_for_a_window())["text_to_image"] == 1


async def test_a_type_is_built_in_the_background_and_named_in_the_answer(served: Served) -> None:
    """Until then searches compare every item."""
    image = content_pb2.MODALITY_IMAGE
    assert (await served.search(1, image)).strategy == pb.SEARCH_STRATEGY_EXACT_SCAN

    await served.tune(image, index_type="HNSW8")
    await served.until_built(image, "HNSW8")

    path = await served.search(1, image)
    assert path.strategy == pb.SEARCH_STRATEGY_UNFILTERED
    assert (path.index_type, path.device, path.fallback_reason) == ("HNSW8", "cpu", "")
    described = await served.description(image)
    assert described.tuning.index_type == "HNSW8"
    assert described.built_recall_percent >= 98
    assert described.index_bytes > ITEM_COUNT * DIMENSION * 4


async def test_an_unknown_type_is_refused_with_faisss_message(served: Served) -> None:
    image = content_pb2.MODALITY_IMAGE

    def tune(index_id: str, **tuning: object) -> grpc.aio.UnaryUnaryCall:
        request = admin_pb.TuneIndexRequest(
            index_id=index_id,
            modality=image,
            tuning=admin_pb.IndexTuning(**tuning),  # type: ignore[arg-type]
        )
        return served.admin.TuneIndex(request)

    unknown_type = await refused(tune(INDEX_ID, index_type="IVF!"))
    assert isinstance(unknown_type, IndexTypeInvalid)
    assert "IVF!" in unknown_type.message
    assert isinstance(await refused(tune(INDEX_ID, recall_target=1.5)), IndexTypeInvalid)
    assert isinstance(await refused(tune("nowhere")), IndexNotFound)
    assert (await served.description(image)).tuning.index_type == "auto"


async def test_types_are_measured_one_by_one(served: Served) -> None:
    """Each has recall, time and bytes; a type that cannot be built has its reason."""
    request = admin_pb.AdviseIndexTypeRequest(
        index_id=INDEX_ID,
        modality=content_pb2.MODALITY_IMAGE,
        index_types=["Flat", "IVF16,SQ8", "IVF4096,Flat"],
        memory_bytes=1_000,
    )
    flat, ivf, impossible = [one async for one in served.admin.AdviseIndexType(request)]

    assert (flat.recall_percent, flat.index_bytes, flat.fits) == (100, 0, True)
    assert ivf.recall_percent >= 98
    assert ivf.parameters["nprobe"] >= 1
    assert ivf.index_bytes > 1_000
    assert not ivf.fits
    assert ivf.search_p50_duration.ToNanoseconds() > 0
    assert "4096" in impossible.refusal
