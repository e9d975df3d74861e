"""A detector's regions as a content: made from rows, packed, and refused by name."""

import struct
from dataclasses import replace

import pytest

from tandem.contract.content import Modality, content_bytes
from tandem.contract.regions import RegionContent, checked_region_content
from tandem.errors import RegionsInvalid

FEATURES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
BOXES = [[0.0, 0.0, 50.0, 25.0], [10.0, 20.0, 30.0, 40.0]]


def made() -> RegionContent:
    return RegionContent.of(FEATURES, BOXES, image_width=200, image_height=100)


def test_rows_become_little_endian_float32() -> None:
    content = made()

    assert content.features == struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    assert content.boxes == struct.pack("<8f", 0, 0, 50, 25, 10, 20, 30, 40)
    assert (content.region_count, content.feature_width) == (2, 3)
    assert content.modality is Modality.IMAGE
    assert not content.has_half_features
    half = replace(content, features=struct.pack("<6e", 1, 2, 3, 4, 5, 6))
    assert checked_region_content(half).has_half_features


def test_packed_regions_are_read_back() -> None:
    content = made()

    assert RegionContent.unpacked(content_bytes(content)) == content


@pytest.mark.parametrize("cut", [1, 60])
def test_truncated_regions_are_refused(cut: int) -> None:
    with pytest.raises(RegionsInvalid):
        RegionContent.unpacked(made().packed()[:-cut])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"region_count": 0}, "region_count is 0; send 1 to 256"),
        ({"feature_width": 20_000}, "feature_width is 20,000; send 1 to 16,384"),
        ({"features": bytes(23)}, "23 bytes, and 2 x 3 values have 12 in float16 or 24"),
        ({"boxes": bytes(31)}, "boxes have 31 bytes instead of 16 a region"),
    ],
)
def test_counts_and_bytes_fit(changes: dict[str, int | bytes], message: str) -> None:
    with pytest.raises(RegionsInvalid, match=message):
        checked_region_content(replace(made(), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("features", "boxes", "message"),
    [
        (FEATURES, BOXES[:1], "2 rows of features and 1 boxes"),
        ([[1.0], [1.0, 2.0]], BOXES, "rows of one length"),
        ([["a"]], BOXES[:1], "features are not rows of numbers"),
        ([[1e39]], BOXES[:1], "too large for float32"),
    ],
)
def test_rows_fit_each_other(
    features: list[list[float]], boxes: list[list[float]], message: str
) -> None:
    with pytest.raises(RegionsInvalid, match=message):
        RegionContent.of(features, boxes, image_width=200, image_height=100)
