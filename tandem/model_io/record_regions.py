"""Finds a record's regions in a detector's files, and makes them the content that a server reads.

Shapes: n regions of one image.
"""

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

import numpy as np

from tandem.contract.regions import MAX_REGION_COUNT, RegionContent
from tandem.corpus.errors import CorpusError, RegionsMissing, RegionsUnreadable
from tandem.corpus.records import Record
from tandem.corpus.regions.regions import RegionReader, Regions
from tandem.model_io.readable_records import RecordFault, RecordUnreadable

# Detectors of COCO write 391895 for COCO_val2014_000000391895.
_LAST_NUMBER: Final = re.compile(r"0*(\d+)$")


class RecordRegions:
    """Gives records' regions by the names that detectors give to pictures."""

    def __init__(self, reader: RegionReader) -> None:
        """Reads the reader's ids."""
        self._reader = reader
        self._ids: dict[str, str] = {}
        ambiguous: set[str] = set()
        for image_id in reader.image_ids():
            for name in _names(image_id):
                if self._ids.setdefault(name, image_id) != image_id:
                    ambiguous.add(name)
        for name in ambiguous:
            del self._ids[name]
        self._ids |= {image_id: image_id for image_id in reader.image_ids()}

    def of(self, record: Record) -> Regions:
        """Returns the regions of the image that is named like the record.

        That is the record's id, the id without its extension, or the number at its end, if no two
        images share it. Raises RecordUnreadable naming the record and what is wrong.
        """
        image_id = next((self._ids[n] for n in _names(record.record_id) if n in self._ids), None)
        try:
            if image_id is None:
                raise RegionsMissing(place="the detector's file", image_id=record.record_id)
            return self._reader.read(image_id)
        except RegionsMissing as error:
            raise RecordUnreadable(record, RecordFault.REGIONS_MISSING, str(error)) from error
        except CorpusError as error:
            raise RecordUnreadable(record, RecordFault.REGIONS_UNREADABLE, str(error)) from error

    def content(self, record: Record) -> RegionContent:
        """Returns the regions as a content; raises RecordUnreadable, also without boxes."""
        try:
            return region_content(self.of(record))
        except RegionsUnreadable as error:
            raise RecordUnreadable(record, RecordFault.REGIONS_UNREADABLE, str(error)) from error


def region_content(regions: Regions) -> RegionContent:
    """Returns the content, with features in float16 if that holds them.

    It has the first regions, at most as many as a server takes. Raises RegionsUnreadable for
    regions without boxes, as SCAN's arrays have them.
    """
    if regions.boxes is None:
        raise RegionsUnreadable("its regions have no boxes, which a model reads too")
    features = regions.features[:MAX_REGION_COUNT]
    with np.errstate(over="ignore"):
        halves = features.astype("<f2")
    values = halves if np.isfinite(halves).all() else features.astype("<f4")
    width, height = round(regions.width), round(regions.height)
    boxes = regions.boxes[:MAX_REGION_COUNT] * np.array([width, height, width, height])
    count, feature_width = features.shape
    return RegionContent(
        values.tobytes(), boxes.astype("<f4").tobytes(), count, feature_width, width, height
    )


def _names(image_id: str) -> Iterator[str]:
    """Yields what an image may be called, the most exact first."""
    yield image_id
    stem = PurePath(image_id).stem
    yield stem
    if match := _LAST_NUMBER.search(stem):
        yield match[1]
