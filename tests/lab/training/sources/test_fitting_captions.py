"""Captions that do not fit are left out and counted; what else is wrong is left to be found."""

import pytest

from tandem.corpus.readable_records import (
    RecordFault,
    RecordUnreadable,
    SkippedRecords,
    check_captions,
    readable_records,
)
from tandem.lab.training.sources.chosen_captions import FittingCaptions
from tandem.model_io.texts.text import TextPreprocessor
from tests.lab.training.sources.test_record_pairs import record
from tests.support.modeling.tiny_checkpoint import tiny_tokenizer

LONG = "two dogs " * 10_000
HALF_A_CHARACTER = "two dogs \ud83d"


def fitting() -> FittingCaptions:
    return FittingCaptions(TextPreprocessor(tiny_tokenizer(), 16))


def test_only_captions_that_are_too_long_are_left_out() -> None:
    """Of three records with five captions, two are; the order stays.

    The record of which nothing would be left comes as it is.
    """
    captions = fitting()

    kept = list(
        captions.of([record("a", "two dogs", LONG), record("b", LONG), record("c", "dogs", "two")])
    )

    assert [[c.caption_id for c in each.captions] for each in kept] == [
        ["a-0"],
        ["b-0"],
        ["c-0", "c-1"],
    ]
    assert (captions.kept_count, captions.dropped_count) == (3, 2)


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (("two dogs", HALF_A_CHARACTER), RecordFault.CAPTION_UNREADABLE),
        ((LONG, LONG), RecordFault.CAPTION_TOO_LONG),
        ((), RecordFault.CAPTION_EMPTY),
    ],
)
def test_a_record_without_a_fitting_caption_has_a_fault(
    texts: tuple[str, ...], fault: RecordFault
) -> None:
    """It stops the work by the record's name, or is skipped, as the caller chose."""
    captions = fitting()
    records = [record("a", "two dogs"), record("bad", *texts), record("c", "dogs")]

    def readable(skipped: SkippedRecords) -> list[str]:
        read = readable_records(
            captions.of(records),
            lambda each: check_captions(each, captions.texts),
            skipped,
        )
        return [each.record_id for each in read]

    with pytest.raises(RecordUnreadable, match=f"'bad'.*{fault}"):
        readable(SkippedRecords())
    skipped = SkippedRecords(goes_on=True)
    assert readable(skipped) == ["a", "c"]
    assert skipped.counts == {fault: 1}
