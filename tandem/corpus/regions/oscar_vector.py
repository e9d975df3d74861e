"""Splits OSCAR's region vector into features and a normalised box.

Shapes: n regions, F features; a vector has F + 6 numbers.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.regions.regions import FEATURE_WIDTH, Regions, checked_regions

PLACE_WIDTH: Final = 6
"""x1, y1, x2, y2, width and height, all normalised."""


def split_vectors(place: str, vectors: NDArray[Any], feature_width: int = FEATURE_WIDTH) -> Regions:
    """Returns the regions of vectors [n, F + 6].

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
