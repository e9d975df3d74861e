"""Measures through the services: ingests a gallery, then searches it."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from typing import Any

import typer

from tandem.cli.evaluate.evaluate_options import EvaluateOptions
from tandem.cli.index.remove import drop_index
from tandem.cli.ingest.demo_note import say_if_demo_serves
from tandem.cli.ingest.item_ingest import ingest_items
from tandem.cli.refusals import described
from tandem.cli.terminal.console import errors
from tandem.cli.terminal.progress import query_progress
from tandem.client import Access, AsyncClient, Client
from tandem.contract.content import Modality
from tandem.corpus.readable_records import (
    OnError,
    RecordCheck,
    check_captions_sendable,
    check_picture_there,
)
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.errors import IndexNotFound, TandemError
from tandem.lab.evaluation.gallery import Direction, Gallery, GalleryDigest
from tandem.lab.evaluation.reports.report import NO_CROSS_ENCODER, Report
from tandem.lab.evaluation.served import AdaptiveDepth, served_reports


class ServedMeasure:
    """Measures the services at one address."""

    def __init__(self, asked: EvaluateOptions, regions: RecordRegions | None = None) -> None:
        """Sends nothing yet; with `regions`, these instead of pictures."""
        self._asked, self._regions = asked, regions
        # Over all galleries.
        self._adaptive_depth = AdaptiveDepth() if asked.adaptive_depth else None
        self._refused_count = 0
        self._pool_sizes = asked.pool_sizes

    @property
    def check(self) -> RecordCheck:
        """Returns the check before sending; the server checks the rest."""
        return check_picture_there if self._regions is None else self._check_regions

    def _check_regions(self, record: Record) -> None:
        assert self._regions is not None, "it is the check of regions"
        check_captions_sendable(record)
        self._regions.content(record)

    def origin(self, digest: GalleryDigest) -> dict[str, str]:
        """Returns nothing: a server does not know what its model was trained on."""
        return {}

    def measure(self, gallery: Gallery, about: Mapping[str, Any]) -> Report:
        """Returns the report of a gallery; without a cross-encoder, of the bi-encoder's order.

        If the server refuses an item of a record, the measurement stops, or leaves the record out
        and counts it.
        """
        if self._regions is not None:
            gallery = replace(gallery, content_of=self._regions.content)
        index_id = _index_id(gallery)
        about = {**about, "concurrency": self._asked.concurrency}
        try:
            gallery = self._ingested(index_id, gallery, about)
            if self._refused_count:
                about["refused by the server"] = f"{self._refused_count} records"
            directions = list(gallery.directions(self._asked.query_count))
            asking = asked_reports(
                *(self._asked, [index_id], directions, self._pool_sizes, about),
                self._adaptive_depth,
            )
            [report] = asyncio.run(asking)
        finally:
            # Also after Ctrl-C or a failure, because this index is not needed again.
            _remove(self._asked.address, index_id)
        if "cross-encoder" in report.about and self._pool_sizes != [0]:
            errors.print(NO_CROSS_ENCODER)
            self._pool_sizes = [0]
        if self._adaptive_depth is None:
            return report
        return replace(report, about={**report.about, "adaptive depth": str(self._adaptive_depth)})

    def _ingested(self, index_id: str, gallery: Gallery, about: Mapping[str, Any]) -> Gallery:
        """Stores a gallery, and returns it without the records that the server refused."""
        with Client(self._asked.address, access=Access.from_environment()) as client:
            say_if_demo_serves(client, str(about.get("corpus")))
            refused = ingest_items(
                client,
                index_id,
                gallery.items(),
                len(gallery.chosen) + len(gallery.pairs),
                gallery.truncation_policy,
                is_kept=False,
            )
        if not refused:
            return gallery
        whole = gallery.only(_without(gallery, set(refused)))
        if self._asked.on_error is OnError.STOP or not whole.asking_count:
            errors.print("the gallery is incomplete, so its recall would be of another set")
            raise typer.Exit(1)
        self._refused_count += len(gallery.chosen) - len(whole.chosen)
        return whole


async def asked_reports(
    asked: EvaluateOptions,
    index_ids: Sequence[str],
    directions: Sequence[Direction],
    pool_sizes: Sequence[int],
    about: Mapping[str, Any],
    adaptive_depth: AdaptiveDepth | None = None,
) -> list[Report]:
    """Searches with all queries, shows how many are done, and returns each index's report."""
    totals = {each.name: len(pool_sizes) * len(each.languages) for each in directions}
    done = dict.fromkeys(totals, 0)
    access = Access.from_environment()
    async with AsyncClient(asked.address, timeout_seconds=60.0, access=access) as client:
        with query_progress(totals, before="connect") as show:

            def count_answer(name: str) -> None:
                done[name] += 1
                show(name, done[name])

            return await served_reports(
                client,
                index_ids,
                directions,
                pool_sizes,
                about,
                truncation_policy=asked.truncation_policy,
                concurrency=asked.concurrency,
                on_answer=count_answer,
                adaptive_depth=adaptive_depth,
            )


def _index_id(gallery: Gallery) -> str:
    """Returns a unique index id for this gallery and run.

    So the index holds one gallery only, and removing it harms neither a user's index nor another
    run.
    """
    texts = [caption.text for _, caption in gallery.pairs]
    digest = sha256()
    for part in (*gallery.item_ids[Modality.IMAGE], *gallery.item_ids[Modality.TEXT], *texts):
        digest.update(part.encode(errors="surrogatepass") + b"\0")
    run = secrets.token_hex(4)
    return f"evaluation-{len(gallery.chosen)}-{digest.hexdigest()[:12]}-{run}"


def _remove(address: str, index_id: str) -> None:
    """Deletes the index; reports if it stays."""
    try:
        with Client(address, access=Access.from_environment()) as client:
            drop_index(client, index_id)
    except IndexNotFound:
        return  # It has no items.
    except TandemError as error:
        errors.print(f"index {index_id} stays, because removing it failed: {described(error)}")
        errors.print(f"remove it: tandem index drop {index_id} --yes")


def _without(gallery: Gallery, refused: set[str]) -> set[int]:
    """Returns the numbers of records without a refused item."""
    image_ids = iter(gallery.item_ids[Modality.IMAGE])
    text_ids = iter(gallery.item_ids[Modality.TEXT])
    return {
        number
        for number, (_, captions) in enumerate(gallery.chosen)
        if not refused & {next(image_ids), *islice(text_ids, len(captions))}
    }
