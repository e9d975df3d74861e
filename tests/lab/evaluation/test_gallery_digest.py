"""The digest of a gallery: of what is asked and searched."""

from dataclasses import replace
from hashlib import sha256

from tandem.corpus.scenes.records import scene_records
from tandem.lab.evaluation.gallery import gallery_digest, make_gallery


def test_queries_and_captions_decide_the_digest() -> None:
    records = list(scene_records("test", 1, 8))
    same, swapped = list(scene_records("test", 1, 8)), [*records[4:], *records[:4]]
    said = replace(records[0].captions[0], text="something else")
    other_caption = [replace(records[0], captions=(said,)), *records[1:]]
    other_picture = [replace(records[0], image=records[1].image), *records[1:]]

    digests = [
        gallery_digest([make_gallery(each, ["en"])]).sha256
        for each in (records, same, swapped, other_caption, other_picture)
    ]
    behind = make_gallery(records[:4], ["en"], distractors=records[4:])

    assert digests[0] == digests[1]
    assert len({*digests, gallery_digest([behind]).sha256}) == 5


def test_pictures_that_ask_are_read_and_no_others() -> None:
    records = list(scene_records("test", 1, 8))
    gallery = make_gallery(records[:4], ["en"], distractors=records[4:])

    digest = gallery_digest([gallery])

    assert digest.pictures == {
        each.record_id: sha256(each.image.read()).digest() for each in records[:4]
    }
    assert gallery_digest([gallery], reads_pictures=False).pictures == {}
