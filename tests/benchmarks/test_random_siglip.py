"""The tokenizer of the full-size SigLIP: as many tokens as published, and every text is read."""

import pytest
from tokenizers import Tokenizer

from benchmarks.support.random_siglip import VOCABULARY_SIZE, random_tokenizer
from tandem.model_io.tokenizer_file import check_tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return random_tokenizer(seed=0)


def test_it_has_the_published_number_of_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    check_tokenizer(tokenizer, VOCABULARY_SIZE)


def test_a_text_is_split_into_known_pieces_and_an_end(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Two dogs  at a fence").ids
    assert ids[-1] == 1
    assert 2 not in ids
    assert ids == tokenizer.encode("two dogs at a fence").ids


def test_a_seed_gives_the_same_tokens(tokenizer: Tokenizer) -> None:
    again, other = random_tokenizer(seed=0), random_tokenizer(seed=1)
    assert again.to_str() == tokenizer.to_str() != other.to_str()
