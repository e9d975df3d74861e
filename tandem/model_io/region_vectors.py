"""Turns a detector's regions into the vectors that a model reads.

Shapes: n regions of one image, F features of a region, L numbers of a box, D = F + L.
"""

import numpy as np
from numpy.typing import NDArray

from tandem.contract.regions import RegionContent
from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.regions.regions import checked_regions
from tandem.errors import RegionsInvalid
from tandem.model_io.preprocessing import BoxNumbers, RegionRules


def box_numbers(boxes_n4: NDArray[np.float32], layout: BoxNumbers) -> NDArray[np.float32]:
    """Returns float32 [n, L] for normalised boxes x1, y1, x2, y2.

    >>> box_numbers(np.array([[0.25, 0, 0.5, 0.5]]), BoxNumbers.CORNERS_SIDES_AREA).tolist()
    [[0.25, 0.0, 0.5, 0.5, 0.25, 0.5, 0.125]]
    """
    sides_n2 = boxes_n4[:, 2:] - boxes_n4[:, :2]
    area_n1 = sides_n2[:, :1] * sides_n2[:, 1:]
    parts = {
        BoxNumbers.CORNERS_SIDES: (boxes_n4, sides_n2),
        BoxNumbers.CORNERS_SIDES_AREA: (boxes_n4, sides_n2, area_n1),
        BoxNumbers.CORNERS_AREA: (boxes_n4, area_n1),
        BoxNumbers.NONE: (boxes_n4[:, :0],),
    }
    return np.concatenate(parts[layout], axis=1, dtype=np.float32)


def region_vectors(
    features_nF: NDArray[np.float32], boxes_n4: NDArray[np.float32], rules: RegionRules
) -> NDArray[np.float16]:
    """Returns float16 [n, D] of the first regions, at most as many as the rules allow.

    Raises ValueError for features of another width than the rules'.
    """
    if features_nF.shape[1:] != (rules.feature_width,):
        raise ValueError(
            f"regions have {features_nF.shape[-1]:,} features and the model reads "
            f"{rules.feature_width:,}; they are another detector's"
        )
    kept = slice(rules.max_regions)
    numbers_nL = box_numbers(boxes_n4[kept], rules.box_numbers)
    return np.concatenate([features_nF[kept], numbers_nL], axis=1).astype(np.float16)


def content_vectors(content: RegionContent, rules: RegionRules) -> NDArray[np.float16]:
    """Returns float16 [n, D] of a content's first regions; raises RegionsInvalid.

    That is for NaN and infinity, boxes outside the image or reversed, features of another width
    than the rules', and features that float16 does not hold.
    """
    dtype = "<f2" if content.has_half_features else "<f4"
    shape = (content.region_count, content.feature_width)
    features_nF = np.frombuffer(content.features, dtype).reshape(shape)
    boxes_n4 = np.frombuffer(content.boxes, "<f4").reshape(content.region_count, 4)
    size = (content.image_width, content.image_height)
    try:
        regions = checked_regions("it", features_nF, boxes_n4, size, rules.feature_width)
    except RegionsUnreadable as error:
        raise RegionsInvalid(why=str(error)) from error
    assert regions.boxes is not None, "they were given"
    with np.errstate(over="ignore"):
        vectors_nD = region_vectors(regions.features, regions.boxes, rules)
    if not np.isfinite(vectors_nD).all():
        raise RegionsInvalid(why="a feature is over 65,504, which float16 does not hold")
    return vectors_nD
