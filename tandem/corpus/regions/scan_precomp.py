"""Reads SCAN's precomputed arrays, and the boxes that CAMERA adds to them.

    {split}_ims.npy        float32 [N, 36, F]
    {split}_ids.txt        one image id a line: N, or five equal ones for each image
    {split}_boxes.npy      optional: [N, 36, 4] in pixels
    {split}_img_sizes.npy  with boxes: [N, 2], width and height

Some releases repeat each image's row five times instead, once for each caption.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import CorpusMalformed
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.corpus.regions.region_archive import BROKEN_ARRAYS
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions

IMAGES_END: Final = "_ims.npy"
_CAPTIONS_EACH: Final = 5


class ScanPrecomp(RegionReader):
    """Reads regions from the arrays of one split, which stay on disk."""

    def __init__(self, images: Path) -> None:
        """Opens {split}_ims.npy and its side files; raises CorpusMalformed if they do not fit."""
        super().__init__(images)
        stem = images.name.removesuffix(IMAGES_END)
        self._features = _opened(images)
        boxes, sizes = (images.parent / f"{stem}_{end}.npy" for end in ("boxes", "img_sizes"))
        has_boxes = boxes.exists() and sizes.exists()
        self._boxes = _opened(boxes, len(self._features)) if has_boxes else None
        self._sizes = _opened(sizes, len(self._features)) if has_boxes else None
        ids_path = images.parent / f"{stem}_ids.txt"
        with open_plain_file(ids_path) as file:
            ids = file.read().decode("utf-8-sig", "replace").split()
        self._found = _rows_of(ids, len(self._features), ids_path)
        is_repeated = len(self._features) == _CAPTIONS_EACH * len(ids)
        if is_repeated and not np.array_equal(*self._features[:2]):
            raise CorpusMalformed(
                f"{images} has five rows for each of {len(ids):,} ids, and the first five are not "
                "of one image; write one id a row"
            )

    def _read(self, image_id: str, place: str) -> Regions:
        row = self._found[image_id]
        features_nF, width = np.asarray(self._features[row]), self.feature_width
        if self._boxes is None or self._sizes is None:
            return checked_regions(place, features_nF, None, feature_width=width)
        size = float(self._sizes[row, 0]), float(self._sizes[row, 1])
        return checked_regions(place, features_nF, np.asarray(self._boxes[row]), size, width)


def _opened(path: Path, length: int | None = None) -> NDArray[Any]:
    """Returns an array without reading it; raises CorpusMalformed for another length."""
    open_plain_file(path).close()
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except BROKEN_ARRAYS as error:
        raise CorpusMalformed(f"{path} is not a whole array ({error}); copy it again") from error
    if length is not None and len(array) != length:
        raise CorpusMalformed(f"{path} has {len(array):,} rows instead of {length:,}")
    return array


def _rows_of(ids: list[str], row_count: int, path: Path) -> dict[str, int]:
    """Returns the first row of each image, in order."""
    by_row: list[str]
    if len(ids) == row_count:
        by_row = ids
    elif len(ids) == _CAPTIONS_EACH * row_count:
        by_row = ids[::_CAPTIONS_EACH]
        if ids != [each for each in by_row for _ in range(_CAPTIONS_EACH)]:
            raise CorpusMalformed(
                f"{path} has five ids for each of {row_count:,} images, and not five equal ones "
                "after each other; write one id a row"
            )
    elif row_count == _CAPTIONS_EACH * len(ids):
        by_row = [each for each in ids for _ in range(_CAPTIONS_EACH)]
    else:
        raise CorpusMalformed(
            f"{path} has {len(ids):,} ids for {row_count:,} images; one a row is wanted, or five"
        )
    rows: dict[str, int] = {}
    for row, image_id in enumerate(by_row):
        if by_row[row - 1] != image_id and image_id in rows:
            raise CorpusMalformed(f"{path} has image {image_id!r} in two places")
        rows.setdefault(image_id, row)
    return rows
