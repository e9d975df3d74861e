"""What every reader checks, and the count of what was left out."""

from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.left_out import LeftOut
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions, read_regions

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 0, 100, 50], [50, 25, 200, 100]])


class OneGood(RegionReader):
    """Has regions of "good", and damaged ones of "bad"."""

    def __init__(self) -> None:
        super().__init__(Path("the test"))
        self._found = {"good": FEATURES, "bad": FEATURES * np.nan}

    def _read(self, image_id: str, place: str) -> Regions:
        return checked_regions(image_id, self._found[image_id], BOXES, (200, 100), 3)


def test_boxes_are_normalised_by_width_and_height() -> None:
    """100 of 200 is a half, 50 of 100 too; features stay."""
    regions = checked_regions("it", FEATURES, BOXES, (200, 100), feature_width=3)

    assert len(regions) == 2
    assert regions.boxes is not None
    assert regions.boxes.tolist() == [[0, 0, 0.5, 0.5], [0.25, 0.25, 1, 1]]
    assert regions.features.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (regions.width, regions.height) == (200, 100)


def test_a_pixel_too_many_is_cut_off() -> None:
    """Detectors count the last pixel; what is more than a hundredth is another image's."""
    regions = checked_regions("it", FEATURES[:1], np.array([[-1, 0, 201, 101]]), (200, 100), 3)

    assert regions.boxes is not None
    assert regions.boxes.tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("features", "boxes", "size", "message"),
    [
        (FEATURES[:, :2], BOXES, (200, 100), r"features \[2, 2\] instead of \[n, 3\]"),
        (FEATURES[:0], BOXES[:0], (200, 100), "has no region"),
        (FEATURES + np.inf, BOXES, (200, 100), "features that are NaN or infinite"),
        (FEATURES, BOXES[:1], (200, 100), r"boxes \[1, 4\] instead of \[2, 4\]"),
        (FEATURES, BOXES, (100, 200), "reach out of an image of 100 x 200"),
        (FEATURES, BOXES[:, [2, 3, 0, 1]], (200, 100), "end before they begin"),
        (FEATURES, BOXES, (0, 100), "an image of 0 x 100 pixels"),
    ],
)
def test_the_fault_is_named(
    features: np.ndarray, boxes: np.ndarray, size: tuple[float, float], message: str
) -> None:
    with pytest.raises(RegionsUnreadable, match=f"^photo 7 .*{message}"):
        checked_regions("photo 7", features, boxes, size, feature_width=3)


def test_unreadable_regions_are_counted_or_stop() -> None:
    left_out = LeftOut(goes_on=True)

    read = dict(read_regions(OneGood(), ["bad", "good", "gone"], left_out))

    assert list(read) == ["good"]
    assert left_out.counts == {"regions unreadable": 1, "regions missing": 1}
    assert "no regions of image 'gone'" in left_out.first[1]
    with pytest.raises(RegionsUnreadable, match="NaN"):
        list(read_regions(OneGood(), ["good", "bad"], LeftOut()))
