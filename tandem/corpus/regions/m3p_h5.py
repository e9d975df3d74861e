"""Reads M3P's HDF5 file of regions.

    image_id [N]   wh [N, 2]   num_boxes [N]   bbox [N, 100, 4] px   features or feature [N, 100, F]

The authors' code reads `wh` as height and width; the name says the reverse. So the boxes decide: no
box reaches out of its image. Needs the extra `regions`.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import (
    CorpusFileMissing,
    CorpusMalformed,
    ExtraMissing,
    RegionsUnreadable,
)
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions

try:
    import h5py
except ImportError as error:
    raise ExtraMissing(what="HDF5 files are read with h5py", extra="regions") from error

_WANTED: Final = ("image_id", "wh", "num_boxes", "bbox")
_FEATURES: Final = ("features", "feature")
_ROWS_AT_ONCE: Final = 4096


class M3pH5(RegionReader):
    """Reads regions from one file, row by row."""

    def __init__(self, path: Path) -> None:
        """Reads ids, sizes and boxes; raises CorpusMalformed for another layout."""
        if not path.is_file():
            raise CorpusFileMissing(f"no file {path}; correct the path")
        super().__init__(path)
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise CorpusMalformed(f"{path} is not a whole HDF5 file; copy it again") from error
        names = [*_WANTED, next((n for n in _FEATURES if n in self._file), _FEATURES[0])]
        if lacks := [name for name in names if name not in self._file]:
            raise CorpusMalformed(
                f"{path} has no dataset {', '.join(lacks)}; it is not an M3P file"
            )
        self._features, self._boxes = self._file[names[-1]], self._file["bbox"]
        self._counts = np.asarray(self._file["num_boxes"]).reshape(-1)
        self._found = {_id(each): row for row, each in enumerate(np.ravel(self._file["image_id"]))}
        if len(self._found) != len(self._counts):
            raise CorpusMalformed(f"{path} has an image twice; remove one of the two rows")
        self._sizes_N2 = self._sizes(np.asarray(self._file["wh"], np.float64))

    def _read(self, image_id: str, place: str) -> Regions:
        row = self._found[image_id]
        count = int(self._counts[row])
        try:
            features, boxes = self._features[row, :count], self._boxes[row, :count]
        except OSError as error:
            raise RegionsUnreadable(f"{place} cannot be read ({error}); copy it again") from error
        width, height = self._sizes_N2[row]
        return checked_regions(place, features, boxes, (width, height), self.feature_width)

    def _sizes(self, said_N2: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns width and height of each image, in the order that the boxes allow."""
        reach_N2 = self._reach()
        outside = [
            int((reach_N2 > 1.01 * each).any(axis=1).sum()) for each in (said_N2, said_N2[:, ::-1])
        ]
        is_square = (said_N2[:, 0] == said_N2[:, 1]).all()
        if min(outside) == 0 and (max(outside) > 0 or is_square):
            return said_N2 if outside[0] == 0 else said_N2[:, ::-1]
        why = "boxes fit both" if max(outside) == 0 else "boxes of some images fit neither"
        raise CorpusMalformed(
            f"{self._path}: wh may be width and height or the reverse, and {why}; write the order "
            "width, height into it and add an image whose boxes need it"
        )

    def _reach(self) -> NDArray[np.float64]:
        """Returns the largest x2 and y2 of each image, [N, 2]."""
        reach_N2 = np.zeros((len(self._counts), 2))
        for start in range(0, len(reach_N2), _ROWS_AT_ONCE):
            boxes = np.asarray(self._boxes[start : start + _ROWS_AT_ONCE], np.float64)
            counts = self._counts[start : start + _ROWS_AT_ONCE]
            counted = np.arange(boxes.shape[1]) < counts[:, None]
            corners = np.where(counted[:, :, None], boxes[:, :, 2:4], 0)
            reach_N2[start : start + _ROWS_AT_ONCE] = corners.max(axis=1, initial=0)
        return reach_N2


def _id(value: Any) -> str:  # noqa: ANN401  whatever type the file's ids have
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
