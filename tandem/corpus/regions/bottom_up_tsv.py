"""Reads the bottom-up-attention detector's tab-separated rows.

    image_id  image_w  image_h  num_boxes  boxes  features

Boxes and features are base64 of float32, [n, 4] in pixels and [n, F]. There is no header. The
Flickr30k files of BAN have the same columns.
"""

from pathlib import Path
from typing import Final

from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions
from tandem.corpus.regions.tsv_rows import base64_matrix, row_fields, row_starts, whole_number

COLUMN_COUNT: Final = 6


class BottomUpTsv(RegionReader):
    """Reads regions from one file, of which only the rows' places are kept in memory."""

    def __init__(self, path: Path) -> None:
        """Reads the file once; raises CorpusMalformed for an id that two rows have."""
        super().__init__(path)
        self._found = row_starts(path)

    def _read(self, image_id: str, place: str) -> Regions:
        fields = row_fields(self._path, self._found[image_id])
        if len(fields) != COLUMN_COUNT:
            raise RegionsUnreadable(
                f"{place} has {len(fields)} columns instead of {COLUMN_COUNT}: image_id, image_w, "
                "image_h, num_boxes, boxes, features"
            )
        width, height, count = (
            whole_number(field, f"{place}: {name}")
            for name, field in zip(("image_w", "image_h", "num_boxes"), fields[1:4], strict=True)
        )
        boxes_n4 = base64_matrix(fields[4], count, f"{place}: boxes")
        features_nF = base64_matrix(fields[5], count, f"{place}: features")
        return checked_regions(place, features_nF, boxes_n4, (width, height), self.feature_width)
