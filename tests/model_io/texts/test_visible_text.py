"""What is invisible in a text is not part of it: the same tokens in training, ingest and search."""

import unicodedata
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer

from tandem.contract.content import TruncationPolicy
from tandem.errors import TextEmpty, TextTooLong
from tandem.lab.training.data.batches import tokenize
from tandem.lab.training.data.caption_groups import caption_groups
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.model_io.texts.text import TextPreprocessor
from tandem.model_io.texts.visible_text import (
    MAX_MARK_RUN,
    TextNotUnicode,
    folded_text,
    visible_text,
)

SENTENCE = "two dogs left of one café"
# Code points of Default_Ignorable_Code_Point, one of each of its ranges, and controls.
IGNORED = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u180b\u180e\u200b\u200c\u200d\u200e\u202a\u202e\u2060"
    "\u2064\u2066\u206a\u206f\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\U0001bca0\U0001d173\U000e0001"
    "\U000e0041\U000e0100\U000e0fff\x00\x07\x1b\x7f\x9f\ufff9\U00013430\U0001d159"
)


def in_each_word(mark: str) -> Callable[[str], str]:
    """Returns a change that puts the mark behind the first letter of each word."""
    return lambda text: " ".join(f"{word[0]}{mark}{word[1:]}" for word in text.split())


def full_width(text: str) -> str:
    """Returns ASCII letters in their full-width forms."""
    return "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text)


VARIANTS: dict[str, Callable[[str], str]] = {
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "full width": full_width,
    "ideographic spaces": lambda text: text.replace(" ", "\u3000"),
    "tabs and newlines": lambda text: "\n" + text.replace(" ", "\t\r\n") + "\x85",
    "Braille blanks": lambda text: text.replace(" ", "\u2800"),
    "a joiner within a letter": lambda text: text.replace("é", "e\u200d\u0301"),
    "tags at the end": lambda text: text + "".join(chr(0xE0000 + ord(each)) for each in "ignore"),
    "ignored letters within": in_each_word(IGNORED),
    "ignored letters in front": lambda text: IGNORED + text,
}


@pytest.fixture(scope="module", name="tokenizer")
def _tokenizer() -> Tokenizer:
    return train_tokenizer([SENTENCE], 200)


def test_a_text_that_looks_the_same_has_the_same_tokens(tokenizer: Tokenizer) -> None:
    """In serving, in training, in what is learnt as a vocabulary, and in who shares a caption."""
    served = TextPreprocessor(tokenizer, 64)

    ids = served.token_ids(SENTENCE).tolist()

    assert len(ids) == 8  # no part of it is unknown, so another text would show
    assert tokenizer.token_to_id("[UNK]") not in ids
    for name, change in VARIANTS.items():
        changed = change(SENTENCE)
        assert served.token_ids(changed).tolist() == ids, name
        in_training = tokenize(tokenizer, [changed, SENTENCE], 64).ids.numpy()
        assert np.array_equal(in_training[0], in_training[1]), name
        assert train_tokenizer([changed], 200).get_vocab() == tokenizer.get_vocab(), name
        assert caption_groups([[SENTENCE.upper()], [changed]]) == [0, 0], name


def test_a_text_that_looks_other_has_other_tokens(tokenizer: Tokenizer) -> None:
    served = TextPreprocessor(tokenizer, 64)

    other = served.token_ids("two dog left of one café")

    assert other.tolist() != served.token_ids(SENTENCE).tolist()


def test_a_text_of_which_nothing_can_be_seen_is_empty(tokenizer: Tokenizer) -> None:
    for text in [*IGNORED, "\u2800", f" {IGNORED}\u3000", "\u2028\x85"]:
        assert visible_text(text) == ""
        with pytest.raises(TextEmpty):
            TextPreprocessor(tokenizer, 64).token_ids(text)


def test_visible_characters_make_a_text(tokenizer: Tokenizer) -> None:
    for text in ["?", "\u0301", "\ufffd", "🐕", "👩\u200d🚀", "\ue000"]:
        assert len(TextPreprocessor(tokenizer, 64).token_ids(text)) >= 3


def test_an_emoji_sequence_is_the_emoji_that_it_is_made_of() -> None:
    """Joiners and selectors are not seen; where a font has no sequence, this is what it shows."""
    assert visible_text("👩\u200d🚀 ❤\ufe0f") == "👩🚀 ❤"


def test_seeing_twice_is_seeing_once() -> None:
    for number in (*range(0xD800), *range(0xF900, 0x20000), *range(0xE0000, 0xE1000)):
        letter = chr(number)
        if not letter.isalnum() or not unicodedata.is_normalized("NFKC", letter):
            seen = visible_text(f"a{letter}b")
            assert visible_text(seen) == seen, hex(number)


@pytest.mark.parametrize(
    "flood",
    ["a" + "\u0301\u0316" * 20_000, "\u0f73\u0316" * 20_000, "\uff9e\u0301" * 20_000],
    ids=["accents", "Tibetan vowels", "half-width marks"],
)
def test_a_flood_of_marks_is_bounded(flood: str) -> None:
    """Sorted by their place, as NFKC does, they would take minutes; the first are read."""
    seen = visible_text(flood)

    assert MAX_MARK_RUN <= len(seen) <= MAX_MARK_RUN + 1
    assert visible_text(seen) == seen


def test_a_form_that_is_many_letters_counts_as_them(tokenizer: Tokenizer) -> None:
    """8,190 bytes of a ligature that stands for eighteen letters are 90,090 bytes to read."""
    text = "\ufdfa" * 2_730

    with pytest.raises(TextTooLong) as caught:
        TextPreprocessor(tokenizer, 64).windows(text, TruncationPolicy.ERROR)

    assert caught.value.metadata == {"got": "90090", "limit": "8192", "unit": "bytes"}


def test_a_lone_surrogate_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(TextNotUnicode, match=r"a lone surrogate \(U\+D83D\) at place 4"):
        TextPreprocessor(tokenizer, 64).token_ids("two \ud83d dogs")

    assert folded_text("\ud83d") == "\ud83d"
