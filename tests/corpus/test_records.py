"""Records are values: compared by content, never changed, small enough to send to a worker."""

import pickle
from dataclasses import FrozenInstanceError

import pytest

from tandem.corpus.emoji import DrawingImage
from tandem.corpus.records import Caption, ImageSource, Record


def a_record(image: ImageSource) -> Record:
    return Record("r1", (Caption("r1-en", "a dog", "en"),), "train", "dogs", image)


def test_records_of_the_same_content_are_equal() -> None:
    """A record is its content, so that a corpus read twice compares equal."""
    assert a_record(DrawingImage("1f415", "noto")) == a_record(DrawingImage("1f415", "noto"))
    assert a_record(DrawingImage("1f415", "noto")) != a_record(DrawingImage("1f408", "noto"))


def test_a_record_cannot_be_changed() -> None:
    """The holder of a record may keep it."""
    with pytest.raises(FrozenInstanceError):
        a_record(DrawingImage("1f415", "noto")).split = "test"  # type: ignore[misc]


def test_a_pickled_record_carries_no_pixels() -> None:
    """A worker gets where the image is, and reads the same bytes there."""
    record = a_record(DrawingImage("1f415", "noto"))

    pickled = pickle.dumps(record)

    assert len(pickled) < 500
    assert pickle.loads(pickled).image.read() == record.image.read()
