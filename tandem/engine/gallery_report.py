"""Measures an engine's recall on records, as `tandem evaluate` measures the services'."""

import secrets
from collections.abc import Iterable, Sequence

from tandem.client import AsyncClient
from tandem.corpus.records import Record
from tandem.engine.async_local import AsyncLocal
from tandem.engine.open_folder import OpenFolder
from tandem.lab.evaluation.gallery import Gallery, languages_of, make_gallery
from tandem.lab.evaluation.reports.machine import machine_about
from tandem.lab.evaluation.reports.report import Report
from tandem.lab.evaluation.served import served_reports


class _OwnClient(AsyncClient):
    """Calls the folder's orchestrator from its own event loop."""

    def __init__(self, folder: OpenFolder) -> None:
        self._transport = AsyncLocal(folder, 60.0)


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
    folder: OpenFolder,
    index_id: str,
    gallery: Gallery,
    pool_sizes: Sequence[int],
    *,
    query_count: int | None,
    concurrency: int,
) -> Report:
    """Returns the report of a gallery that is in the index; errors as `served_reports`."""
    [report] = await served_reports(
        _OwnClient(folder),
        [index_id],
        gallery.directions(query_count),
        pool_sizes,
        {"title": f"gallery of {gallery.asking_count:,}", **machine_about()},
        concurrency=concurrency,
    )
    return report
