"""Evaluation through the services and without them: one result."""

from dataclasses import replace

import pytest
import pytest_asyncio

from tandem.client import AsyncClient, Client
from tandem.corpus.records import Record
from tandem.lab.evaluation.gallery import Gallery, languages_of, make_gallery
from tandem.lab.evaluation.offline_report import offline_report
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.served import served_reports
from tandem.model_io.repository.precision import Precision, native_precision
from tandem.modeling.checkpoint import load_checkpoint
from tandem.modeling.default_checkpoint import default_checkpoint
from tandem.modeling.export.lowered import lowered
from tandem.stack.stack import LocalStack

POOL_SIZES = [5, 10]


@pytest.fixture(scope="module")
def gallery(records: list[Record]) -> Gallery:
    """Two captions a picture, so that pictures have several answers; five families of four."""
    return make_gallery(records[:20], languages_of(records), captions_per_picture=2)


@pytest_asyncio.fixture(scope="module")
async def served(stack: LocalStack, gallery: Gallery) -> Report:
    """Through encode, search and rerank."""
    with Client(stack.address, timeout_seconds=30.0) as client:
        outcomes = client.ingest(gallery.items(), index_id="evaluation")
        assert all(outcome.error is None for outcome in outcomes)

    async with AsyncClient(stack.address, timeout_seconds=60.0) as client:
        asked = gallery.directions()
        [report] = await served_reports(client, ["evaluation"], asked, POOL_SIZES, {})
        return report


def offline(gallery: Gallery, precision: Precision) -> Report:
    """Returns the report of the shipped checkpoint in this process."""
    loaded = load_checkpoint(default_checkpoint())
    model = lowered(loaded.model, precision)
    return offline_report(replace(loaded, model=model), gallery, POOL_SIZES, {})


def test_the_served_recall_is_the_offline_one(served: Report, gallery: Gallery) -> None:
    """Of every order and direction, at every cut-off; and nearly every answer stands as it did.

    Nearly: two items whose scores differ by less than the paths do may change places.
    """
    here = offline(gallery, native_precision())

    assert served.orders() == here.orders()
    for ranking in served.rankings:
        twin = here.ranking(ranking.direction, ranking.order_by)
        for recall, its_twin in zip(ranking.recalls, twin.recalls, strict=True):
            assert recall.percent == pytest.approx(its_twin.percent, abs=1e-4)
        # A served answer outside the pool has no rank.
        pairs = [(a, b) for a, b in zip(ranking.ranks, twin.ranks, strict=True) if a is not None]
        assert sum(a == b for a, b in pairs) >= 0.98 * len(twin.ranks)
