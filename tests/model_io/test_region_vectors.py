"""A region's vector by three models' rules."""

import doctest

import numpy as np
import pytest
from numpy.testing import assert_allclose

from tandem.model_io import region_vectors as module
from tandem.model_io.preprocessing import BoxNumbers, RegionRules
from tandem.model_io.region_vectors import region_vectors

FEATURES = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
BOXES = np.array([[0, 0.25, 0.5, 1], [0, 0, 1, 1], [0.5, 0.5, 0.75, 1]], np.float32)


def test_doctests() -> None:
    """The examples in the docstrings are true."""
    result = doctest.testmod(module, extraglobs={"np": np})

    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("numbers", "first"),
    [
        (BoxNumbers.CORNERS_SIDES, [1, 2, 0, 0.25, 0.5, 1, 0.5, 0.75]),
        (BoxNumbers.CORNERS_SIDES_AREA, [1, 2, 0, 0.25, 0.5, 1, 0.5, 0.75, 0.375]),
        (BoxNumbers.CORNERS_AREA, [1, 2, 0, 0.25, 0.5, 1, 0.375]),
    ],
)
def test_a_vector_is_features_and_box(numbers: BoxNumbers, first: list[float]) -> None:
    """The box is 0.5 wide and 0.75 high; of three regions two are read."""
    rules = RegionRules(feature_width=2, box_numbers=numbers, max_regions=2)

    vectors = region_vectors(FEATURES, BOXES, rules)

    assert vectors.dtype == np.float16
    assert vectors.shape == (2, rules.vector_width)
    assert rules.vector_width == len(first)
    assert_allclose(vectors[0], first)


def test_another_detector_is_refused() -> None:
    rules = RegionRules(feature_width=2048, box_numbers=BoxNumbers.CORNERS_AREA, max_regions=2)

    with pytest.raises(ValueError, match="have 2 features and the model reads 2,048"):
        region_vectors(FEATURES, BOXES, rules)
