"""Finds a record's regions in a detector's files, and makes them what a server or a model reads.

Shapes: n regions of one image, D numbers of a region.
"""

import numpy as np
from numpy.typing import NDArray

from tandem.contract.regions import MAX_REGION_COUNT, RegionContent
from tandem.corpus.errors import CorpusError, RegionsMissing, RegionsUnreadable
from tandem.corpus.readable_records import RecordFault, RecordUnreadable
from tandem.corpus.records import Record
from tandem.corpus.regions.image_names import ImageNames
from tandem.corpus.regions.regions import RegionReader, Regions
from tandem.errors import RegionsInvalid
from tandem.model_io.pictures.image_rules import RegionRules
from tandem.model_io.pictures.region_vectors import content_vectors


class RecordRegions:
    """Gives records' regions by the names that detectors give to pictures."""

    def __init__(self, reader: RegionReader) -> None:
        """Reads the reader's ids."""
        self._reader = reader
        self._names = ImageNames(reader.image_ids())

    def of(self, record: Record) -> Regions:
        """Returns the regions of the image that is named like the record.

        Names are compared as ImageNames does. Raises RecordUnreadable naming the record and what is
        wrong.
        """
        image_id = self._names.find(record.record_id)
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

    def vectors(self, record: Record, rules: RegionRules) -> NDArray[np.float16]:
        """Returns the regions as a model reads them, float16 [n, D]; raises RecordUnreadable."""
        try:
            return content_vectors(self.content(record), rules)
        except RegionsInvalid as error:
            raise RecordUnreadable(record, RecordFault.REGIONS_UNREADABLE, error.message) from error


def region_content(regions: Regions) -> RegionContent:
    """Returns the content, with features in float16 if that holds them.

    It has the first regions, at most as many as a server takes. Raises RegionsUnreadable for
    regions without boxes, as SCAN's arrays have them.
    """
    if regions.boxes is None:
        raise RegionsUnreadable("its regions have no boxes, which a model needs too")
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
