"""Defines what every reader of a detector's file returns, and the checks that they share.

Shapes: n regions of one image, F the detector's features.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import CorpusError, CorpusMalformed, RegionsMissing, RegionsUnreadable
from tandem.corpus.left_out import LeftOut
from tandem.corpus.readers.plain_file import open_plain_file
from tandem.model_io.pictures.region_vectors import checked_arrays

FEATURE_WIDTH: Final = 2048
"""Features of a box by the detectors of OSCAR, UNITER and M3P."""
PLACE_WIDTH: Final = 6
"""Of OSCAR's vectors: x1, y1, x2, y2, width and height, all normalised."""


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


class RegionReader(ABC):
    """Reads an image's regions, by its id, from where a file has them."""

    feature_width = FEATURE_WIDTH

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: Mapping[str, Any] = {}
        """Where the regions of each image are, in the file's order."""

    def image_ids(self) -> Iterator[str]:
        """Yields the ids of all images in the file's order, each once."""
        yield from self._found

    def read(self, image_id: str) -> Regions:
        """Returns an image's regions.

        Raises RegionsMissing for an id that the file lacks, and RegionsUnreadable naming what is
        wrong with its regions.
        """
        if image_id not in self._found:
            raise RegionsMissing(place=self._path, image_id=image_id)
        return self._read(image_id, f"{self._path}: image {image_id!r}")

    @abstractmethod
    def _read(self, image_id: str, place: str) -> Regions:
        """Returns the regions of an image that is there; errors name the `place`."""


def checked_regions(
    place: str,
    features: NDArray[Any],
    boxes: NDArray[Any] | None,
    size: tuple[float, float] = (1.0, 1.0),
    feature_width: int = FEATURE_WIDTH,
) -> Regions:
    """Returns regions whose boxes are given in units of `size`, width and height.

    Raises RegionsUnreadable naming `place` for what checked_arrays refuses.
    """
    try:
        features_nF, boxes_n4 = checked_arrays(features, boxes, size, feature_width)
    except ValueError as error:
        raise RegionsUnreadable(f"{place} {error}") from error
    return Regions(features_nF, boxes_n4, *map(float, size))


def split_vectors(place: str, vectors: NDArray[Any], feature_width: int = FEATURE_WIDTH) -> Regions:
    """Returns the regions of OSCAR's vectors [n, F + 6], features and a normalised box.

    Raises RegionsUnreadable as `checked_regions` does, and for a width or height that is not the
    difference of its corners: then the order of the six numbers is another.
    """
    if vectors.ndim != 2 or vectors.shape[1] != feature_width + PLACE_WIDTH:
        raise RegionsUnreadable(
            f"{place} has vectors {list(vectors.shape)} instead of "
            f"[n, {feature_width + PLACE_WIDTH}]; they are another detector's"
        )
    features, boxes, sides = np.split(vectors, [feature_width, feature_width + 4], axis=1)
    regions = checked_regions(place, features, boxes, feature_width=feature_width)
    if not np.allclose(sides, boxes[:, 2:] - boxes[:, :2], atol=2e-3):
        raise RegionsUnreadable(
            f"{place} has widths and heights other than x2 - x1 and y2 - y1; the last six numbers "
            "of a region are x1 y1 x2 y2 width height, each 0 to 1"
        )
    return regions


def read_regions(
    reader: RegionReader, image_ids: Iterable[str], left_out: LeftOut
) -> Iterator[tuple[str, Regions]]:
    """Yields each image's regions; `left_out` counts those that cannot be read, or raises."""
    for image_id in image_ids:
        try:
            regions = reader.read(image_id)
        except CorpusError as error:
            is_missing = isinstance(error, RegionsMissing)
            left_out.refuse(error, "regions missing" if is_missing else "regions unreadable")
            continue
        yield image_id, regions


def json_of(path: Path) -> dict[str, int]:
    """Returns the numbers of a side file by image; raises CorpusMalformed for one cut short."""
    try:
        with open_plain_file(path) as file:
            numbers: dict[str, int] = json.load(file)
    except ValueError as error:
        raise CorpusMalformed(f"{path} is not JSON ({error}); copy it again") from error
    return numbers
