"""Measures an engine's recall on records, as `tandem evaluate` measures the services'."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import grpc

from embedded.local_server import LocalChannel, LocalServer
from tandem.client import Access, AsyncClient
from tandem.corpus.records import Record
from tandem.evaluation.gallery import Gallery, languages_of, make_gallery
from tandem.evaluation.reports.machine import machine_about
from tandem.evaluation.reports.report import Report
from tandem.evaluation.served import served_report


@dataclass(frozen=True, slots=True)
class _InLoop(Access):
    """Opens a channel to a server of this event loop in place of a connection."""

    channel: LocalChannel | None = None

    def open_aio_channel(self, address: str) -> grpc.aio.Channel:
        """Returns the channel."""
        return self.channel


def gallery_of(records: Iterable[Record], language: str | None, captions: int) -> Gallery:
    """Returns the records as a gallery; families alternate between the languages.

    Raises ValueError without records, or where no language has a caption for every picture.
    """
    chosen = list(records)
    if not chosen:
        raise ValueError("there are no records to evaluate on")
    return make_gallery(chosen, [language] if language else languages_of(chosen), captions)


def gallery_index_id() -> str:
    """Returns a new index id, which no other index has."""
    return f"evaluation-{secrets.token_hex(6)}"


async def gallery_report(
    server: LocalServer,
    index_id: str,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    *,
    query_count: int | None,
    concurrency: int,
) -> Report:
    """Returns the report of a gallery that is in the index; errors as `served_report`."""
    access = _InLoop(channel=LocalChannel(server))
    async with AsyncClient("in-process:1", timeout_seconds=60.0, access=access) as client:
        return await served_report(
            client,
            index_id,
            gallery,
            pool_sizes,
            {"title": f"gallery of {gallery.asking_count:,}", **machine_about()},
            query_count=query_count,
            concurrency=concurrency,
        )
