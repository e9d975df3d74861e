"""Texts about as long go through the model together, each row once."""

import torch

from tandem.lab.training.data.batches import TextBatch, by_length, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer


def texts_of(lengths: list[int]) -> TextBatch:
    """Returns texts that say their row's number from 1 on, padded with zeros to the longest."""
    longest = max(lengths)
    ids = [[row + 1] * length + [0] * (longest - length) for row, length in enumerate(lengths)]
    mask = [[1] * length + [0] * (longest - length) for length in lengths]
    return TextBatch(torch.tensor(ids), torch.tensor(mask))


def test_halves_by_length_are_padded_to_about_their_own_longest() -> None:
    short, long = by_length(texts_of([3, 1, 2, 5, 4]), 2)

    assert short.rows.tolist() == [1, 2, 0]
    assert short.texts.ids.tolist() == [[2, 0, 0, 0], [3, 3, 0, 0], [1, 1, 1, 0]]
    assert short.texts.mask.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert long.rows.tolist() == [4, 3]
    assert long.texts.ids.tolist() == [[5, 5, 5, 5, 0], [4, 4, 4, 4, 4]]


def test_texts_have_few_lengths() -> None:
    """Every length is a shape of its own, for which kernels are made."""
    tokenizer = train_tokenizer(["dog " * 30], 50)
    batches = [tokenize(tokenizer, ["dog " * count], 31) for count in range(1, 30)]

    assert {batch.ids.shape[1] for batch in batches} == {4, 8, 12, 16, 20, 24, 28, 31}
    assert [int(batch.mask.sum()) for batch in batches] == list(range(3, 32))


def test_rows_of_one_length_stay_in_order() -> None:
    parts = by_length(texts_of([2] * 7), 2)

    assert [part.rows.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5, 6]]
