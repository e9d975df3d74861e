"""Which regions are a record's, and the content that is made of them."""

from pathlib import Path

import numpy as np
import pytest

from tandem.corpus.errors import RegionsUnreadable
from tandem.corpus.readable_records import RecordFault, RecordUnreadable
from tandem.corpus.readers.image_sources import ImageFile
from tandem.corpus.record_regions import RecordRegions, region_content
from tandem.corpus.records import Record
from tandem.corpus.regions.regions import RegionReader, Regions, checked_regions

BOXES = np.array([[0, 0, 320, 240], [160, 120, 640, 480]])


class Numbered(RegionReader):
    """Gives each id a region whose feature is the id's place; "bad" is damaged."""

    def __init__(self, *image_ids: str) -> None:
        super().__init__(Path("it"))
        self._found = {image_id: place for place, image_id in enumerate(image_ids)}

    def _read(self, image_id: str, place: str) -> Regions:
        if image_id == "bad":
            raise RegionsUnreadable("image 'bad' is cut short")
        feature = np.full((1, 1), self._found[image_id], np.float32)
        return checked_regions(image_id, feature, np.array([[0, 0, 1, 1]]), feature_width=1)


def record(record_id: str) -> Record:
    return Record(record_id, (), "test", record_id, ImageFile(Path("it"), "it"))


def test_a_records_regions_are_found_in_another_spelling() -> None:
    found = RecordRegions(Numbered("other", "391895")).of(record("COCO_val2014_000000391895"))

    assert found.features.tolist() == [[1]]


def test_missing_and_damaged_images_are_named_with_their_record() -> None:
    with pytest.raises(RecordUnreadable, match="no regions of image '7'") as missing:
        RecordRegions(Numbered("8")).of(record("7"))
    with pytest.raises(RecordUnreadable, match=r"record 'bad' .*cut short") as damaged:
        RecordRegions(Numbered("bad")).content(record("bad"))

    assert missing.value.fault is RecordFault.REGIONS_MISSING
    assert damaged.value.fault is RecordFault.REGIONS_UNREADABLE


def test_a_content_has_pixels_and_half_features() -> None:
    features = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

    content = region_content(checked_regions("it", features, BOXES, (640, 480), 3))

    assert content.has_half_features
    assert np.frombuffer(content.features, "<f2").tolist() == [1, 2, 3, 4, 5, 6]
    assert np.frombuffer(content.boxes, "<f4").reshape(2, 4).tolist() == BOXES.tolist()
    assert (content.region_count, content.feature_width) == (2, 3)
    assert (content.image_width, content.image_height) == (640, 480)


def test_large_features_stay_as_they_are() -> None:
    features = np.full((2, 1), 1e5, np.float32)

    content = region_content(checked_regions("it", features, BOXES, (640, 480), 1))

    assert not content.has_half_features
    assert np.frombuffer(content.features, "<f4").tolist() == [1e5, 1e5]


def test_regions_beyond_the_servers_limit_are_cut() -> None:
    boxes = np.tile([0, 0, 1, 1], (300, 1))
    regions = checked_regions("it", np.ones((300, 1)), boxes, feature_width=1)

    assert region_content(regions).region_count == 256


def test_regions_without_boxes_cannot_be_sent() -> None:
    with pytest.raises(RegionsUnreadable, match="have no boxes"):
        region_content(checked_regions("it", np.ones((1, 1)), None, feature_width=1))
