"""Captions of some languages: kept, dropped and counted."""

import pytest

from tandem.corpus.records import Caption, ImageSource, Record
from tandem.lab.training.sources.chosen_captions import SpokenCaptions


class _NoPicture(ImageSource):
    def read(self) -> bytes:
        raise AssertionError("no picture is read")


def record(name: str, *languages: str) -> Record:
    captions = tuple(Caption(f"{name}-{each}", f"{name} in {each}", each) for each in languages)
    return Record(name, captions, "train", name, _NoPicture())


def test_only_captions_of_the_languages_are_left() -> None:
    """A record without one is left out and counted; one without any caption is its reader's."""
    spoken = SpokenCaptions(("de", "fr"))
    records = [record("a", "en", "de"), record("b", "en"), record("c"), record("d", "fr", "de")]

    read = list(spoken.of(records))

    assert [each.record_id for each in read] == ["a", "c", "d"]
    assert [[c.language for c in each.captions] for each in read] == [["de"], [], ["fr", "de"]]
    assert spoken.left_out_count == 1


def test_a_language_that_no_caption_is_in_is_refused() -> None:
    records = [record("a", "en", "de"), record("b", "en")]

    with pytest.raises(ValueError, match="no caption is in cs; the corpus has captions in en, de:"):
        list(SpokenCaptions(("cs",)).of(records))
