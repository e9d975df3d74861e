"""A region's vector by three models' rules."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tandem.contract.regions import RegionContent
from tandem.errors import RegionsInvalid
from tandem.model_io.pictures.image_rules import BoxNumbers, RegionRules
from tandem.model_io.pictures.region_vectors import content_vectors, region_vectors

FEATURES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
BOXES = np.array([[0, 0.25, 0.5, 1], [0, 0, 1, 1], [0.5, 0.5, 0.75, 1]], np.float32)


@pytest.mark.parametrize(
    ("numbers", "first"),
    [
        (BoxNumbers.CORNERS_SIDES, [1, 2, 0, 0.25, 0.5, 1, 0.5, 0.75]),
        (BoxNumbers.CORNERS_SIDES_AREA, [1, 2, 0, 0.25, 0.5, 1, 0.5, 0.75, 0.375]),
        (BoxNumbers.CORNERS_AREA, [1, 2, 0, 0.25, 0.5, 1, 0.375]),
    ],
)
def test_a_vector_is_features_and_box(numbers: BoxNumbers, first: list[float]) -> None:
    rules = RegionRules(feature_width=2, box_numbers=numbers, max_regions=2)

    vectors = region_vectors(FEATURES, BOXES, rules)

    assert vectors.dtype == np.float16
    assert vectors.shape == (2, rules.vector_width)
    assert rules.vector_width == len(first)
    assert_allclose(vectors[0], first)


RULES = RegionRules(feature_width=2, box_numbers=BoxNumbers.CORNERS_AREA, max_regions=2)


@pytest.mark.parametrize("dtype", ["<f2", "<f4"])
def test_a_contents_boxes_are_in_pixels(dtype: str) -> None:
    """100 of 200 is a half; both types of features say the same."""
    boxes = np.array([[0, 0, 100, 50], [0, 0, 200, 100], [0, 0, 1, 1]], "<f4")
    content = RegionContent(FEATURES.astype(dtype).tobytes(), boxes.tobytes(), 3, 2, 200, 100)

    vectors = content_vectors(content, RULES)

    assert vectors.tolist() == [[1, 2, 0, 0, 0.5, 0.5, 0.25], [3, 4, 0, 0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("features", "boxes", "message"),
    [
        ([[1, np.nan]], [[0, 0, 1, 1]], "NaN or infinite"),
        ([[1, 7e4]], [[0, 0, 1, 1]], "over 65,504"),
        ([[1, 2, 3]], [[0, 0, 1, 1]], r"features \[1, 3\] instead of \[n, 2\]; they are another"),
        ([[1, 2]], [[0, 0, 300, 1]], "reach out of an image of 200 x 100"),
        ([[1, 2]], [[5, 0, 1, 1]], "end before they begin"),
    ],
)
def test_a_content_that_no_model_reads_is_refused(
    features: list[list[float]], boxes: list[list[float]], message: str
) -> None:
    content = RegionContent.of(features, boxes, image_width=200, image_height=100)

    with pytest.raises(RegionsInvalid, match=message):
        content_vectors(content, RULES)
