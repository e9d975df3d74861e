"""Masked words: only words, so many of them; the model predicts what stood there."""

import random

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from tandem.lab.training.data.batches import MaskedBatch, MatchBatch, TextBatch, tokenize
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.lab.training.stages.masked_words import mask_id, masked, with_hidden_words
from tandem.model_io.texts.special_tokens import special_tokens

TEXTS = [
    "two cats on the left and three dogs on the right",
    "one cat",
    "three dogs at the top and one cat at the bottom",
]


@pytest.fixture(name="tokenizer", scope="module")
def _tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, 200)


def batch(tokenizer: Tokenizer, copies: int = 1) -> MatchBatch:
    """Returns the texts, so many times over, each with its own image."""
    texts = tokenize(tokenizer, TEXTS * copies, 64)
    count = len(texts.ids)
    return MatchBatch(
        texts,
        torch.arange(count * 2.0).view(count, 1, 2),
        torch.ones(count, 1, dtype=torch.int64),
        torch.arange(count),
    )


def of(tokenizer: Tokenizer, share: float, copies: int = 1, seed: int = 0) -> MaskedBatch:
    """Returns the batch masked, as a run's tokenizer has it masked."""
    special = special_tokens(tokenizer)
    return masked(batch(tokenizer, copies), share, mask_id(tokenizer), special, random.Random(seed))


def words_of(tokenizer: Tokenizer, texts: Tensor) -> Tensor:
    """Returns where a word stands: neither padding nor what is around a text."""
    special = special_tokens(tokenizer)
    return (texts != special.cls_id) & (texts != special.sep_id) & (texts != special.pad_id)


def test_masked_words_are_replaced_and_others_stay(tokenizer: Tokenizer) -> None:
    """The words asked for are those that stood there; images, and what counts, are untouched."""
    whole, one = batch(tokenizer, 20), of(tokenizer, 0.5, 20)

    assert torch.equal(one.words, whole.texts.ids)
    assert (one.texts.ids[one.is_masked] == mask_id(tokenizer)).all()
    assert torch.equal(one.texts.ids[~one.is_masked], whole.texts.ids[~one.is_masked])
    assert torch.equal(one.texts.mask, whole.texts.mask)
    assert torch.equal(one.tokens, whole.tokens)


@pytest.mark.parametrize("share", [0.15, 1.0])
def test_the_share_of_masked_tokens_counts_words_only(tokenizer: Tokenizer, share: float) -> None:
    one = of(tokenizer, share, 200)
    is_word = words_of(tokenizer, one.words)

    assert not one.is_masked[~is_word].any()
    count = int(is_word.sum())
    spread = 4 * (share * (1 - share) / count) ** 0.5
    assert float(one.is_masked.sum()) / count == pytest.approx(share, abs=spread + 1e-9)


def test_a_share_too_small_for_the_batch_masks_one_word(tokenizer: Tokenizer) -> None:
    """A loss over none would be the mean of nothing."""
    assert int(of(tokenizer, 1e-9).is_masked.sum()) == 1


def test_the_draw_follows_its_seed(tokenizer: Tokenizer) -> None:
    """The same seed masks the same words, another others: a stopped run continues as it would."""
    first, again, other = (of(tokenizer, 0.5, 5, seed).is_masked for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_published_tokenizer_brings_its_mask(tokenizer: Tokenizer) -> None:
    """BERT's [MASK] is what its encoder has learned to see where a word is masked."""
    published = Tokenizer.from_str(tokenizer.to_str())
    published.add_special_tokens(["[MASK]"])

    assert mask_id(tokenizer) == special_tokens(tokenizer).pad_id
    assert mask_id(published) == published.token_to_id("[MASK]") != mask_id(tokenizer)


def test_hidden_words_are_a_share_and_never_the_first_token() -> None:
    """Padding stays; without a share nothing is drawn, so that other recipes' runs stay equal."""
    texts = TextBatch(torch.full((200, 12), 9), torch.ones(200, 12, dtype=torch.int64))
    texts.mask[:, 10:] = 0
    rng = random.Random(1)
    before = rng.getstate()

    assert with_hidden_words(texts, 0.0, 4, rng) is texts
    assert rng.getstate() == before
    hidden = with_hidden_words(texts, 0.25, 4, rng)

    is_hidden = hidden.ids == 4
    assert not is_hidden[:, 0].any()
    assert not is_hidden[:, 10:].any()
    assert is_hidden[:, 1:10].float().mean().item() == pytest.approx(0.25, abs=0.04)
    assert torch.equal(hidden.mask, texts.mask)
