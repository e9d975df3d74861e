"""Captions that do not fit are left out and counted; nothing else is."""

import pytest

from tandem.errors import TextEmpty
from tandem.model_io.text import TextPreprocessor
from tandem.training.fitting_captions import FittingCaptions
from tests.modeling.tiny_checkpoint import tiny_tokenizer
from tests.training.test_record_pairs import record

LONG = "two dogs " * 10_000


def fitting() -> FittingCaptions:
    """Returns one for a model of 16 tokens."""
    return FittingCaptions(TextPreprocessor(tiny_tokenizer(), 16))


def test_only_captions_that_are_too_long_are_left_out() -> None:
    """Of three records with five captions, two go; the order stays, and a mute record comes too."""
    captions = fitting()

    kept = list(
        captions.of([record("a", "two dogs", LONG), record("b", LONG), record("c", "dogs", "two")])
    )

    assert [[c.caption_id for c in each.captions] for each in kept] == [["a-0"], [], ["c-0", "c-1"]]
    assert (captions.kept_count, captions.dropped_count) == (3, 2)


def test_an_empty_caption_is_no_long_one() -> None:
    """It is a fault of the corpus, and not passed over."""
    with pytest.raises(TextEmpty):
        list(fitting().of([record("a", "two dogs", " ")]))
