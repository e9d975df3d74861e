"""Reads the bottom-up-attention detector's tab-separated rows.

    image_id  image_w  image_h  num_boxes  boxes  features

Boxes and features are base64 of float32, [n, 4] in pixels and [n, F]. There is no header. The
Flickr30k files of BAN have the same columns.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tandem.corpus.errors import CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.regions.base64_matrix import base64_matrix, whole_number
from tandem.corpus.regions.regions import FEATURE_WIDTH, Regions, checked_regions

COLUMN_COUNT: Final = 6


class BottomUpTsv:
    """Reads regions from one file, of which only the rows' places are kept in memory."""

    def __init__(self, path: Path, feature_width: int = FEATURE_WIDTH) -> None:
        """Reads the file once; raises CorpusMalformed for an id that two rows have."""
        self._path, self._feature_width = path, feature_width
        self._starts: dict[str, int] = {}
        start = 0
        with open_plain_file(path) as file:
            for number, line in enumerate(file, 1):
                image_id = line.partition(b"\t")[0].decode("utf-8", "replace").strip()
                if image_id in self._starts:
                    raise CorpusMalformed(
                        f"{path}: line {number} is image {image_id!r} again; remove one of the two"
                    )
                if line.strip():
                    self._starts[image_id] = start
                start += len(line)

    def image_ids(self) -> Iterator[str]:
        """Yields the ids in the rows' order."""
        yield from self._starts

    def read(self, image_id: str) -> Regions:
        """Returns an image's regions; errors as `RegionReader.read`."""
        if image_id not in self._starts:
            raise RegionsMissing(place=self._path, image_id=image_id)
        with open_plain_file(self._path) as file:
            file.seek(self._starts[image_id])
            fields = file.readline().rstrip(b"\r\n").split(b"\t")
        place = f"{self._path}: image {image_id!r}"
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
        return checked_regions(place, features_nF, boxes_n4, (width, height), self._feature_width)
