"""Turns a detector's regions into the vectors that a model reads.

Shapes: n regions of one image, F features of a region, L numbers of a box, D = F + L.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tandem.contract.regions import RegionContent
from tandem.errors import RegionsInvalid
from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules

# Detectors may count the last pixel as one more, and float16 rounds.
_TOLERANCE: Final = 0.01


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
        features_nF, boxes = checked_arrays(features_nF, boxes_n4, size, rules.feature_width)
    except ValueError as error:
        raise RegionsInvalid(why=f"it {error}") from error
    assert boxes is not None, "they were given"
    with np.errstate(over="ignore"):
        vectors_nD = region_vectors(features_nF, boxes, rules)
    if not np.isfinite(vectors_nD).all():
        raise RegionsInvalid(why="a feature is over 65,504, which float16 does not hold")
    return vectors_nD


def checked_arrays(
    features: NDArray[Any],
    boxes: NDArray[Any] | None,
    size: tuple[float, float],
    feature_width: int,
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Returns features and boxes, the latter from units of `size` (width, height) to 0 to 1.

    Raises ValueError for features of another width, NaN or infinity, no region, boxes of another
    count, outside the image or reversed, and an image without a size. The message is a sentence's
    end.
    """
    if features.ndim != 2 or features.shape[1] != feature_width:
        raise ValueError(
            f"has features {list(features.shape)} instead of [n, {feature_width}]; they are "
            "another detector's"
        )
    if not len(features):
        raise ValueError("has no region; run the detector on the image again")
    features_nF = np.ascontiguousarray(_single_precision("features", features))
    if not np.isfinite(features_nF).all():
        raise ValueError("has features that are NaN or infinite; detect it again")
    width, height = map(float, size)
    if not (np.isfinite([width, height]).all() and width > 0 and height > 0):
        raise ValueError(f"is an image of {width:g} x {height:g} pixels")
    if boxes is None:
        return features_nF, None
    return features_nF, _normalised(boxes, len(features), width, height)


def are_numbers(array: NDArray[Any]) -> bool:
    """Returns whether an array holds integers or real numbers: others would convert silently."""
    return array.dtype.kind in "fiu"


def _single_precision(what: str, array: NDArray[Any]) -> NDArray[np.float32]:
    if not are_numbers(array):
        raise ValueError(f"has {what} of type {array.dtype}, which are no numbers")
    with np.errstate(over="ignore"):  # what becomes infinite is named by the caller
        return array.astype(np.float32)


def _normalised(
    boxes: NDArray[Any], count: int, width: float, height: float
) -> NDArray[np.float32]:
    if boxes.shape != (count, 4):
        raise ValueError(
            f"has boxes {list(boxes.shape)} instead of [{count}, 4], one for each region"
        )
    boxes_n4 = _single_precision("boxes", boxes) / np.array(
        [width, height, width, height], np.float32
    )
    if not np.isfinite(boxes_n4).all():
        raise ValueError("has boxes that are NaN or infinite; detect it again")
    if boxes_n4.min() < -_TOLERANCE or boxes_n4.max() > 1 + _TOLERANCE:
        raise ValueError(
            f"has boxes that reach out of an image of {width:g} x {height:g}; boxes and size are "
            "of two images, or of two units"
        )
    if (boxes_n4[:, 2:] < boxes_n4[:, :2]).any():
        raise ValueError("has boxes that end before they begin, not x1 y1 x2 y2")
    clipped: NDArray[np.float32] = boxes_n4.clip(0, 1)
    return clipped
