"""What a served model reads of a text: one way for its embeddings, another for its pairs."""

import pytest
from tokenizers import Tokenizer

from tandem.contract.content import TextUse, TruncationPolicy
from tandem.errors import TextTooLong
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.model_io.inference.served_texts import ServedText, ServedTexts
from tandem.model_io.texts.text import TextPreprocessor
from tests.support.repository.made_manifest import text_rules

SENTENCE = "two red dogs sat left of one blue umbrella near three green trees"
WORDS = SENTENCE.split()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """One id a word, between 2 and 3."""
    return train_tokenizer([SENTENCE] * 3, 200)


def preprocessor(tokenizer: Tokenizer, **rules: object) -> TextPreprocessor:
    return TextPreprocessor.by_rules(tokenizer, text_rules(**rules))  # type: ignore[arg-type]


def words_of(tokenizer: Tokenizer, served: ServedText) -> list[list[str]]:
    """The words of each pair window, without its first and last id."""
    return [tokenizer.decode(ids[1:-1].tolist()).split() for ids in served.pair_windows]


def test_rules_change_the_ids(tokenizer: Tokenizer) -> None:
    plain = preprocessor(tokenizer).token_ids("red dogs")

    def ids(text: str, **rules: object) -> list[int]:
        return preprocessor(tokenizer, **rules).token_ids(text).tolist()

    assert ids("RED Dogs", is_lower_case=True) == plain.tolist()
    assert ids("dogs", prompt="red ") == plain.tolist()
    assert ids("red dogs", first_id=77) == [77, *plain[1:]]


def test_a_text_is_cut_so_that_its_special_tokens_stay(tokenizer: Tokenizer) -> None:
    short = preprocessor(tokenizer, max_tokens=5, first_id=77)

    read = short.windows(SENTENCE, TruncationPolicy.TRUNCATE)

    [ids] = read.windows
    assert (ids[0], ids[-1], len(ids)) == (77, 3, 5)
    assert tokenizer.decode(ids[1:-1].tolist()).split() == WORDS[:3]
    assert read.text_use == TextUse(len(WORDS) + 2, 5)


def test_equal_rules_read_once(tokenizer: Tokenizer) -> None:
    text = preprocessor(tokenizer)

    served = ServedTexts(text, text, is_same=True).windows("red dogs", TruncationPolicy.ERROR)

    assert served.pair_windows is served.windows


def test_a_bi_encoder_alone_pairs_nothing(tokenizer: Tokenizer) -> None:
    alone = ServedTexts(preprocessor(tokenizer, max_tokens=6), None, is_same=False)

    served = alone.windows(SENTENCE, TruncationPolicy.BEST_WINDOW)

    assert len(served.windows) > 1
    assert [ids.size for ids in served.pair_windows] == [0] * len(served.windows)


def test_each_window_is_paired_by_its_own_words(tokenizer: Tokenizer) -> None:
    """The passage of a window, by the other rules: here a shorter limit and another first id."""
    texts = ServedTexts(
        preprocessor(tokenizer, max_tokens=8),
        preprocessor(tokenizer, max_tokens=6, first_id=77),
        is_same=False,
    )

    served = texts.windows(SENTENCE, TruncationPolicy.BEST_WINDOW)

    own = [tokenizer.decode(ids[1:-1].tolist()).split() for ids in served.windows]
    assert len(own) > 1
    assert [each[:4] for each in own] == words_of(tokenizer, served)
    assert {int(ids[0]) for ids in served.pair_windows} == {77}


def test_the_shorter_limit_counts(tokenizer: Tokenizer) -> None:
    """A text that only pairs cut is refused under ERROR, and reported as cut under TRUNCATE."""
    texts = ServedTexts(
        preprocessor(tokenizer, max_tokens=16),
        preprocessor(tokenizer, max_tokens=6),
        is_same=False,
    )
    text = " ".join(WORDS[:8])

    with pytest.raises(TextTooLong):
        texts.windows(text, TruncationPolicy.ERROR)
    cut = texts.windows(text, TruncationPolicy.TRUNCATE)

    assert cut.text_use == TextUse(10, 6)
    assert len(cut.windows[0]) == 10
    assert words_of(tokenizer, cut) == [WORDS[:4]]
