"""Galleries: whole, in turn through the languages, and with one right answer a query."""

from collections import Counter

import pytest

from tandem.content import Modality
from tandem.corpus.records import Caption, Record
from tandem.corpus.scenes import FAMILY_SIZE, scene_records
from tandem.evaluation.gallery import Gallery, make_gallery

LANGUAGES = ("en", "de", "fr", "cs")


@pytest.fixture(name="gallery", scope="module")
def _gallery() -> Gallery:
    return make_gallery(scene_records("test", 1, 32), LANGUAGES)


def test_every_record_has_one_caption_of_its_own(gallery: Gallery) -> None:
    """The first of its language."""
    assert len(gallery.pairs) == 32
    for record, caption in gallery.pairs:
        of_language = [each for each in record.captions if each.language == caption.language]
        assert caption == of_language[0]


def test_families_take_turns_through_the_languages(gallery: Gallery) -> None:
    """Siblings share a language, so that a caption's hardest rivals are in its own."""
    languages = [caption.language for _, caption in gallery.pairs]

    expected = [language for language in LANGUAGES * 2 for _ in range(FAMILY_SIZE)]
    assert languages == expected


def test_items_are_all_pictures_and_then_all_captions(gallery: Gallery) -> None:
    """Each under the id that queries are answered with; no id stands twice."""
    items = list(gallery.items())

    assert len(items) == len({item_id for item_id, _ in items}) == 64
    for (record, caption), (image_id, image), (text_id, text) in zip(
        gallery.pairs, items[:32], items[32:], strict=True
    ):
        assert (image_id, image) == (record.record_id, record.image.read())
        assert (text_id, text) == (caption.caption_id, caption.text)


def test_queries_ask_one_side_for_the_other(gallery: Gallery) -> None:
    """A caption for its picture, a picture for its caption, in the records' order."""
    contents = dict(gallery.items())

    for (record, caption), by_text, by_image in zip(
        gallery.pairs, gallery.text_queries(), gallery.image_queries(), strict=True
    ):
        assert (by_text.query, by_text.target_modality) == (caption.text, Modality.IMAGE)
        assert contents[by_text.answer_id] == record.image.read() == by_image.query
        assert by_image.target_modality is Modality.TEXT
        assert contents[by_image.answer_id] == caption.text
        assert by_text.language == by_image.language == caption.language


def test_a_family_keeps_its_language_where_records_are_mixed() -> None:
    """Turns go by family, in the order in which families first appear."""
    first, second = "ab"
    records = [_record(f"{family}{n}", family) for n in range(2) for family in (first, second)]

    gallery = make_gallery(records, ("en", "de"))

    languages = Counter((record.family, caption.language) for record, caption in gallery.pairs)
    assert languages == {("a", "en"): 2, ("b", "de"): 2}


def test_a_record_without_its_familys_language_is_refused() -> None:
    """By name, rather than leaving a query out."""
    with pytest.raises(ValueError, match="a0 has no caption in 'fr'"):
        make_gallery([_record("a0", "a")], ("fr",))


class _NoImage:
    def read(self) -> bytes:
        return b""


def _record(record_id: str, family: str) -> Record:
    captions = tuple(
        Caption(f"{record_id}-{language}", f"{record_id} in {language}", language)
        for language in ("en", "de")
    )
    return Record(record_id, captions, "test", family, _NoImage())
