"""Opens a detector's files for the commands that send regions instead of images."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tandem.cli.options import user_path
from tandem.client import NewContent
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readable_records import SkippedRecords, records_read
from tandem.corpus.record_regions import RecordRegions
from tandem.corpus.records import Record
from tandem.corpus.regions.region_layouts import open_regions
from tandem.corpus.regions.regions import RegionReader

SentRecord = tuple[Record, NewContent]
"""A record, and what is sent for its image."""

# Files that torch wrote, and our own.
_OF_TORCH: Final = (".pt", ".pth", ".safetensors")


def open_detector_files(path: Path, left_out: LeftOut) -> RegionReader:
    """Returns the reader of the layout at the path; raises CorpusError if none is known."""
    path = user_path(str(path))
    if path.suffix not in _OF_TORCH:
        return open_regions(path, left_out)
    # Imported here, because torch takes seconds, and the images of services have none.
    from tandem.modeling.image_sources.region_sources import open_region_source

    return open_region_source(path, left_out)


def with_pictures(records: Iterable[Record]) -> Iterator[SentRecord]:
    """Yields each record with its picture's bytes, or the text that it is."""
    for record in records:
        yield record, record.image.read() if record.text is None else record.text


def with_regions(
    records: Iterable[Record], regions: RecordRegions, skipped: SkippedRecords
) -> Iterator[SentRecord]:
    """Yields each record with its regions; no picture is read.

    A record without them stops the work, or is counted in `skipped`.
    """
    yield from records_read(records, regions.content, skipped)
