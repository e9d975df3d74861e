"""Texts into token ids, and the texts that are refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tandem.lab.training.data.caption_tokenizer import train_tokenizer
from tandem.model_io.texts.text import TextPreprocessor
from tests.support.repository.made_manifest import text_rules

SENTENCE = "two dogs left of one umbrella"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A tokenizer that knows the sentence's words and letters."""
    return train_tokenizer([SENTENCE], 200)


@pytest.fixture(scope="module")
def tokenizer_path(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def preprocessor(tokenizer_path: Path) -> TextPreprocessor:
    return TextPreprocessor.open(tokenizer_path.parent, text_rules())


def test_text_is_put_between_its_special_tokens(
    preprocessor: TextPreprocessor, tokenizer: Tokenizer
) -> None:
    words = [tokenizer.token_to_id(word) for word in SENTENCE.split()]

    ids = preprocessor.token_ids(SENTENCE)

    assert ids.dtype == np.int32
    assert ids.tolist() == [
        tokenizer.token_to_id("[CLS]"),
        *words,
        tokenizer.token_to_id("[SEP]"),
    ]


def test_case_does_not_matter(preprocessor: TextPreprocessor) -> None:
    assert np.array_equal(
        preprocessor.token_ids(SENTENCE.upper()), preprocessor.token_ids(SENTENCE)
    )


def test_one_mark_is_a_text(preprocessor: TextPreprocessor) -> None:
    assert len(preprocessor.token_ids("?")) == 3


def test_truncation_and_padding_in_the_file_are_not_followed(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    cutting = Tokenizer.from_file(str(tokenizer_path))
    cutting.enable_truncation(4)
    cutting.enable_padding(length=12)
    cutting.save(str(tmp_path / "tokenizer.json"))

    ids = TextPreprocessor.open(tmp_path, text_rules()).token_ids(SENTENCE)

    assert len(ids) == 8


def test_threads_share_one_preprocessor(preprocessor: TextPreprocessor) -> None:
    texts = [" ".join(["dogs"] * (1 + number % 12)) for number in range(400)]

    with ThreadPoolExecutor(4) as threads:
        lengths = [len(ids) for ids in threads.map(preprocessor.token_ids, texts)]

    assert lengths == [3 + number % 12 for number in range(400)]


@pytest.mark.parametrize("content", ["", "{}"])
def test_file_that_is_not_a_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"tokenizer\.json is (not a tokenizer|empty)"):
        TextPreprocessor.open(tmp_path, text_rules())


def test_missing_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.json is missing"):
        TextPreprocessor.open(tmp_path, text_rules(tokenizer="absent.json"))


def test_special_tokens_spelled_out_are_letters(
    preprocessor: TextPreprocessor, tokenizer: Tokenizer
) -> None:
    """A text cannot end the model's input with "[SEP]"."""
    separator = tokenizer.token_to_id("[SEP]")

    ids = preprocessor.token_ids("dogs [SEP] [PAD] dogs").tolist()

    assert ids.count(separator) == 1
    assert tokenizer.token_to_id("[PAD]") not in ids
