"""The records whose neighbours are computed: each has a caption, or is refused by its name."""

from dataclasses import replace

import pytest

from tandem.cli.neighbours.neighbour_gallery import neighbour_gallery
from tandem.corpus.readable_records import (
    RecordUnreadable,
    SkippedRecords,
    check_picture_there,
)
from tandem.corpus.scenes.records import scene_records


def test_a_record_without_a_caption_is_refused_or_skipped() -> None:
    """A server would not refuse it, and a training could not map its picture to a text."""
    records = list(scene_records("train", 1, 8))
    silent = [*records[:3], replace(records[3], captions=()), *records[4:]]

    with pytest.raises(RecordUnreadable, match=f"{records[3].record_id}.*none to search with"):
        neighbour_gallery(silent, None, 1, check_picture_there, SkippedRecords(goes_on=False))
    skipped = SkippedRecords(goes_on=True)
    gallery = neighbour_gallery(silent, None, 1, check_picture_there, skipped)

    assert [each.record_id for each in gallery.records] == [
        each.record_id for each in records if each.record_id != records[3].record_id
    ]
    assert any("caption empty" in line for line in skipped.lines())
