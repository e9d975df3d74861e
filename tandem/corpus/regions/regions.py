"""Defines what every reader of a detector's file returns, and the checks that they share.

Shapes: n regions of one image, F the detector's features.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import CorpusError, RegionsUnreadable
from tandem.corpus.left_out import LeftOut

FEATURE_WIDTH: Final = 2048
"""Features of a box by the detectors of OSCAR, UNITER and M3P."""

# Detectors may count the last pixel as one more, and float16 rounds.
_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """Holds a detector's regions of one image, in the file's order."""

    features: NDArray[np.float32]
    """[n, F]"""
    boxes: NDArray[np.float32] | None
    """[n, 4]: x1, y1, x2, y2, 0 to 1 of the image's width or height; None if the file has none."""
    width: float
    """In pixels; 1 if the file has normalised boxes only."""
    height: float

    def __len__(self) -> int:
        """Returns the number of regions."""
        return len(self.features)


class RegionReader(Protocol):
    """Gives an image's regions by its id."""

    def image_ids(self) -> Iterator[str]:
        """Yields the ids of all images in the file's order, each once."""
        ...

    def read(self, image_id: str) -> Regions:
        """Returns an image's regions.

        Raises RegionsMissing for an id that the file lacks, and RegionsUnreadable naming what is
        wrong with its regions.
        """
        ...


def checked_regions(
    place: str,
    features: NDArray[Any],
    boxes: NDArray[Any] | None,
    size: tuple[float, float] = (1.0, 1.0),
    feature_width: int = FEATURE_WIDTH,
) -> Regions:
    """Returns regions whose boxes are given in units of `size`, width and height.

    Raises RegionsUnreadable naming `place` for features of another width, NaN or infinity, no
    region, boxes of another count, outside the image or reversed, and an image without a size.
    """
    if features.ndim != 2 or features.shape[1] != feature_width:
        raise RegionsUnreadable(
            f"{place} has features {list(features.shape)} instead of [n, {feature_width}]; they "
            "are another detector's"
        )
    if not len(features):
        raise RegionsUnreadable(f"{place} has no region; run the detector on the image again")
    features_nF = np.ascontiguousarray(_single_precision(place, "features", features))
    if not np.isfinite(features_nF).all():
        raise RegionsUnreadable(f"{place} has features that are NaN or infinite; detect it again")
    width, height = map(float, size)
    if not (np.isfinite([width, height]).all() and width > 0 and height > 0):
        raise RegionsUnreadable(f"{place} is an image of {width:g} x {height:g} pixels")
    boxes_n4 = None if boxes is None else _normalised(place, boxes, len(features), width, height)
    return Regions(features_nF, boxes_n4, width, height)


def read_regions(
    reader: RegionReader, image_ids: Iterable[str], left_out: LeftOut
) -> Iterator[tuple[str, Regions]]:
    """Yields each image's regions; `left_out` counts those that cannot be read, or raises."""
    for image_id in image_ids:
        try:
            regions = reader.read(image_id)
        except CorpusError as error:
            left_out.refuse(error, _FAULTS.get(type(error).__name__, "regions unreadable"))
            continue
        yield image_id, regions


_FAULTS: Final = {"RegionsMissing": "regions missing"}


def are_numbers(array: NDArray[Any]) -> bool:
    """Returns whether an array holds integers or real numbers: others would convert silently."""
    return array.dtype.kind in "fiu"


def _single_precision(place: str, what: str, array: NDArray[Any]) -> NDArray[np.float32]:
    if not are_numbers(array):
        raise RegionsUnreadable(f"{place} has {what} of type {array.dtype}, which are no numbers")
    with np.errstate(over="ignore"):  # what becomes infinite is named by the caller
        return array.astype(np.float32)


def _normalised(
    place: str, boxes: NDArray[Any], count: int, width: float, height: float
) -> NDArray[np.float32]:
    if boxes.shape != (count, 4):
        raise RegionsUnreadable(
            f"{place} has boxes {list(boxes.shape)} instead of [{count}, 4], one for each region"
        )
    boxes_n4 = _single_precision(place, "boxes", boxes) / np.array(
        [width, height, width, height], np.float32
    )
    if not np.isfinite(boxes_n4).all():
        raise RegionsUnreadable(f"{place} has boxes that are NaN or infinite; detect it again")
    if boxes_n4.min() < -_TOLERANCE or boxes_n4.max() > 1 + _TOLERANCE:
        raise RegionsUnreadable(
            f"{place} has boxes that reach out of an image of {width:g} x {height:g}; boxes and "
            "size are of two images, or of two units"
        )
    if (boxes_n4[:, 2:] < boxes_n4[:, :2]).any():
        raise RegionsUnreadable(f"{place} has boxes that end before they begin, not x1 y1 x2 y2")
    clipped: NDArray[np.float32] = boxes_n4.clip(0, 1)
    return clipped
