"""Texts around the limit of tokens, under each policy: what is read of them, and what is refused.

The tokenizer knows the letters a to z, so a text of single letters has a token a letter, and its
ids say which of the letters were read.
"""

import itertools
import string
import time

import numpy as np
import pytest
from tokenizers import Tokenizer

from tandem.contract.content import TextUse, TruncationPolicy
from tandem.errors import TextEmpty, TextTooLong
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.model_io.texts.text import (
    MAX_LONG_TEXT_BYTES,
    MAX_TEXT_BYTES,
    MAX_WINDOW_COUNT,
    TextPreprocessor,
)

LIMIT = 18
ROOM = 16
ERROR, TRUNCATE, BEST_WINDOW = TruncationPolicy


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([" ".join(string.ascii_lowercase)], 200)


@pytest.fixture(scope="module")
def preprocessor(tokenizer: Tokenizer) -> TextPreprocessor:
    return TextPreprocessor(tokenizer, LIMIT)


def letters(token_count: int) -> str:
    """Returns a text that is `token_count` tokens with [CLS] and [SEP]."""
    alphabet = string.ascii_lowercase
    return " ".join(alphabet[number % 26] for number in range(token_count - 2))


@pytest.mark.parametrize(
    ("token_count", "policy", "window_count", "used_token_count"),
    [
        (LIMIT, ERROR, 1, LIMIT),
        (LIMIT, BEST_WINDOW, 1, LIMIT),
        (LIMIT + 1, TRUNCATE, 1, LIMIT),
        (LIMIT + 1, BEST_WINDOW, 2, LIMIT + 1),
        # Windows begin at most 12 tokens apart: 28 more tokens than fit in one take three more.
        (LIMIT + 28, BEST_WINDOW, 4, LIMIT + 28),
        # The most that is read without a gap, and one more.
        (LIMIT + 31 * 16, BEST_WINDOW, 32, LIMIT + 31 * 16),
        (LIMIT + 31 * 16 + 1, BEST_WINDOW, 32, LIMIT + 31 * 16),
        (10_000, TRUNCATE, 1, LIMIT),
    ],
)
def test_texts_around_the_limit_are_read(
    preprocessor: TextPreprocessor,
    token_count: int,
    policy: TruncationPolicy,
    window_count: int,
    used_token_count: int,
) -> None:
    read = preprocessor.windows(letters(token_count), policy)

    assert read.text_use == TextUse(token_count, used_token_count)
    assert read.text_use.is_truncated == (used_token_count < token_count)
    assert len(read.windows) == window_count
    assert {len(ids) for ids in read.windows} == {min(token_count, LIMIT)}


def test_error_refuses_a_text_over_the_limit(preprocessor: TextPreprocessor) -> None:
    with pytest.raises(TextTooLong) as caught:
        preprocessor.windows(letters(4_000), ERROR)
    assert caught.value.metadata == {"got": "4000", "limit": str(LIMIT), "unit": "tokens"}

    with pytest.raises(TextTooLong) as caught:
        preprocessor.windows(letters(10_000), ERROR)
    assert caught.value.metadata["unit"] == "bytes"
    assert caught.value.metadata["limit"] == str(MAX_TEXT_BYTES)


def test_truncation_reads_the_beginning(
    preprocessor: TextPreprocessor, tokenizer: Tokenizer
) -> None:
    [ids] = preprocessor.windows(letters(40), TRUNCATE).windows

    assert [tokenizer.id_to_token(each) for each in ids] == [
        "[CLS]",
        *string.ascii_lowercase[:ROOM],
        "[SEP]",
    ]


def test_windows_go_from_the_first_token_to_the_last(
    preprocessor: TextPreprocessor, tokenizer: Tokenizer
) -> None:
    """26 tokens are two windows of 16; what is on the seam is in both."""
    windows = preprocessor.windows(letters(28), BEST_WINDOW).windows

    read = ["".join(tokenizer.id_to_token(each) for each in ids[1:-1]) for ids in windows]  # type: ignore[misc]
    assert read == ["abcdefghijklmnop", "klmnopqrstuvwxyz"]
    assert {(int(ids[0]), int(ids[-1])) for ids in windows} == {
        (tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]"))
    }


def test_a_long_text_is_bounded_in_bytes(preprocessor: TextPreprocessor) -> None:
    policy = BEST_WINDOW
    whole = ("x " * MAX_LONG_TEXT_BYTES)[:MAX_LONG_TEXT_BYTES]
    assert preprocessor.windows(whole, policy).text_use.token_count == MAX_LONG_TEXT_BYTES // 2 + 2

    with pytest.raises(TextTooLong) as caught:
        preprocessor.windows(whole + "x", policy)

    assert caught.value.metadata == {
        "got": str(MAX_LONG_TEXT_BYTES + 1),
        "limit": str(MAX_LONG_TEXT_BYTES),
        "unit": "bytes",
    }


def test_text_without_words_is_empty_under_every_policy(preprocessor: TextPreprocessor) -> None:
    for policy, text in itertools.product(TruncationPolicy, (" \n", "\u3000" * 20)):
        with pytest.raises(TextEmpty):
            preprocessor.windows(text, policy)


SLOW = {
    "longest known words": "zyxwvutsrq" * 9 + "zyxwvutsr ",
    "one word": "x",
    "stacked accents": "\u0301\u0323",
    "control characters": "\x01a",
}


@pytest.mark.parametrize("unit", SLOW.values(), ids=SLOW)
def test_the_longest_text_takes_bounded_time(preprocessor: TextPreprocessor, unit: str) -> None:
    text = (unit * MAX_LONG_TEXT_BYTES).encode()[:MAX_LONG_TEXT_BYTES].decode(errors="ignore")
    start_time = time.process_time()

    read = preprocessor.windows(text, BEST_WINDOW)

    assert time.process_time() - start_time < 10
    assert 1 <= len(read.windows) <= MAX_WINDOW_COUNT
    assert all(len(ids) <= LIMIT and ids.dtype == np.int32 for ids in read.windows)
