"""Measuring through services: whose index a gallery is in, and what a refused item does to it."""

import asyncio
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.evaluate.served_measure import ServedMeasure
from tandem.cli.ingest.source_job import LongTexts
from tandem.contract.content import TruncationPolicy
from tandem.corpus.readable_records import OnError
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions
from tandem.corpus.scenes.records import scene_records
from tandem.errors import CrossEncoderMissing
from tandem.lab.evaluation.gallery import Gallery, make_gallery
from tandem.lab.evaluation.reports.report import Report, joined
from tandem.v1 import content_pb2, error_reason_pb2
from tandem.v1 import search_service_pb2 as pb
from tests.support.client.search_server import all_stored, search_server

REFUSED = "-scenes-test-000000-2"


def gallery(seed: int = 1, language: str = "en") -> Gallery:
    """Returns two families in one language."""
    return make_gallery(scene_records("test", seed, 8), [language])


def measure_at(address: str, **options: Any) -> ServedMeasure:
    return ServedMeasure(EvaluateOptions(address=address, concurrency=2, **options))


async def one_refused(request: pb.IngestItemsRequest) -> pb.IngestItemsResponse:
    """Stores all but one picture."""
    response = await all_stored(request)
    for result in response.results:
        if result.item_id.endswith(REFUSED):
            result.error.reason = error_reason_pb2.ERROR_REASON_IMAGE_UNREADABLE
            result.error.message = "the image cannot be read"
    return response


async def measured(
    *galleries: Gallery, on_error: OnError = OnError.STOP, refusing: bool = False
) -> tuple[list[Report], list[str]]:
    """Returns each gallery's report and the index it went into."""
    async with search_server(ingest=one_refused if refusing else all_stored) as (address, told):
        measure = measure_at(address, on_error=on_error)
        reports = [
            await asyncio.to_thread(measure.measure, each, {"title": "t"}) for each in galleries
        ]
    ingests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    return reports, list(dict.fromkeys(each.index_id for each in ingests))


async def test_each_gallery_has_its_own_index() -> None:
    _, indexes = await measured(gallery(), gallery(seed=2), gallery(language="de"), gallery())

    assert len(indexes) == 4
    assert all(re.fullmatch(r"evaluation-8-[0-9a-f]{12}-[0-9a-f]{8}", each) for each in indexes)


@pytest.mark.parametrize("refusing", [False, True])
async def test_its_index_is_removed_after_success_and_failure(refusing: bool) -> None:
    """Whole, and no other; also where the measuring fails."""
    async with search_server(ingest=one_refused if refusing else all_stored) as (address, told):
        measure = measure_at(address)
        try:
            await asyncio.to_thread(measure.measure, gallery(), {"title": "t"})
        except typer.Exit:
            assert refusing

    ingests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    [index_id] = {each.index_id for each in ingests}
    removals = [each for each in told.requests if isinstance(each, pb.RemoveIndexRequest)]
    # The server leaves a part at the first call.
    assert removals == [pb.RemoveIndexRequest(index_id=index_id)] * 2
    assert told.requests[-2:] == removals


async def test_a_refused_item_stops_it() -> None:
    """A recall over the others would be of another set."""
    with pytest.raises(typer.Exit):
        await measured(gallery(), refusing=True)


async def test_a_refused_items_record_is_left_out_on_request() -> None:
    """It neither asks nor answers, and the report says so."""
    [report], _ = await measured(gallery(), on_error=OnError.SKIP, refusing=True)

    assert report.about["refused by the server"] == "1 records"
    assert [len(each.ranks) for each in report.rankings] == [7, 7, 7, 7]


async def test_a_gallerys_policy_for_long_captions_is_sent_with_items_and_queries() -> None:
    """A caption is both."""
    async with search_server() as (address, told):
        measure = measure_at(address, long_texts=LongTexts.TRUNCATE)
        cut = replace(gallery(), truncation_policy=TruncationPolicy.TRUNCATE)
        await asyncio.to_thread(measure.measure, cut, {"title": "t"})

    policies = [
        each.truncation_policy
        for each in told.requests
        if isinstance(each, pb.SearchItemsRequest | pb.IngestItemsRequest)
    ]
    assert set(policies) == {content_pb2.TRUNCATION_POLICY_TRUNCATE}


async def test_a_bi_encoder_alone_is_measured_with_one_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def bi_encoder(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        if request.rerank_required:
            raise CrossEncoderMissing(what="rerank_required")
        return pb.SearchItemsResponse()

    async with search_server(search=bi_encoder) as (address, told):
        measure = measure_at(address, k=[5, 20])
        reports = [
            await asyncio.to_thread(measure.measure, gallery(seed), {"title": "t"})
            for seed in (1, 2)
        ]

    assert [each.orders() for each in reports] == [["BE"], ["BE"]]
    assert joined(reports).about["cross-encoder"] == "none"
    assert capsys.readouterr().err.count("there is no cross-encoder") == 1
    searches = [each for each in told.requests if isinstance(each, pb.SearchItemsRequest)]
    answered = [each for each in searches if each.rerank_disabled]
    assert len(answered) == 2 * 16
    # The second gallery asks no more for what is not there.
    assert not any(each.rerank_required for each in searches[-16:])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_its_index_is_removed_when_it_is_stopped(number: signal.Signals) -> None:
    is_asked = asyncio.Event()

    async def never(request: pb.SearchItemsRequest) -> pb.SearchItemsResponse:
        is_asked.set()
        await asyncio.sleep(600)
        raise AssertionError

    command = ["evaluate", "scenes", "--count", "8", "--concurrency", "1"]
    async with search_server(search=never) as (address, told):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tandem.cli", *command, "--address", address),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await asyncio.wait_for(is_asked.wait(), 120)
            process.send_signal(number)
            status = await asyncio.wait_for(process.wait(), 120)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    assert status == 128 + number
    removals = [each for each in told.requests if isinstance(each, pb.RemoveIndexRequest)]
    ingests = [each for each in told.requests if isinstance(each, pb.IngestItemsRequest)]
    assert {each.index_id for each in removals} == {each.index_id for each in ingests}


class OneRegion(RegionReader):
    """Has one region of every scene."""

    def __init__(self) -> None:
        super().__init__(Path("scenes"))
        self._found = dict.fromkeys(each.record_id for each in scene_records("test", 1, 8))

    def _read(self, image_id: str, place: str) -> Regions:
        number = int(image_id.rpartition("-")[2])
        return checked_regions(
            image_id, np.full((1, 2), number), np.array([[0, 0, 1, 1]]), feature_width=2
        )


async def test_regions_are_stored_and_searched_with_instead_of_pictures() -> None:
    async with search_server(ingest=all_stored) as (address, told):
        regions = RecordRegions(OneRegion())
        measure = ServedMeasure(EvaluateOptions(address=address, concurrency=2), regions)
        measure.check(next(iter(scene_records("test", 1, 8))))
        await asyncio.to_thread(measure.measure, gallery(), {"title": "t"})

    items = [
        item
        for each in told.requests
        if isinstance(each, pb.IngestItemsRequest)
        for item in each.items
    ]
    queries = [each.query for each in told.requests if isinstance(each, pb.SearchItemsRequest)]
    sent = {
        item.item_id: item.content.regions.features
        for item in items
        if item.content.HasField("regions")
    }
    asked = [query.regions.features for query in queries if query.HasField("regions")]
    assert len(sent) == 8
    assert all(
        features == np.full(2, int(name.rpartition("-")[2]), "<f2").tobytes()
        for name, features in sent.items()
    )
    assert sorted(asked) == sorted(sent.values())
    assert not any(item.content.image for item in items)
    assert not any(query.image for query in queries)
