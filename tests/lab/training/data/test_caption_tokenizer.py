"""The tokenizer: the same captions give the same vocabulary, and every caption survives it."""

import subprocess
import sys
from itertools import islice

import pytest
from tokenizers import Tokenizer

from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.nouns import LANGUAGES
from tandem.corpus.scenes.records import scene_families
from tandem.lab.training.data.caption_tokenizer import CLS, PAD, SEP, UNKNOWN, train_tokenizer

# Small enough that many merges tie.
TRAIN_AGAIN = """
from itertools import islice
from tandem.corpus.scenes.captions import captions_of
from tandem.corpus.scenes.records import scene_families
from tandem.lab.training.data.caption_tokenizer import train_tokenizer
families = islice(scene_families("train", 1), 20)
texts = (text for family in families for text in captions_of(family[0], "cs"))
print(train_tokenizer(texts, 200).to_str())
"""


def captions(family_count: int = 100) -> list[str]:
    """Returns the captions of the first train scenes in all languages."""
    return [
        text
        for family in islice(scene_families("train", 1), family_count)
        for scene in family
        for language in LANGUAGES
        for text in captions_of(scene, language)
    ]


@pytest.fixture(name="tokenizer", scope="module")
def _tokenizer() -> Tokenizer:
    return train_tokenizer(captions(), 1500)


def test_another_process_gives_the_same_vocabulary() -> None:
    """Hash tables of another process iterate in another order; the vocabulary does not."""
    command = [sys.executable, "-c", TRAIN_AGAIN]
    there = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    families = islice(scene_families("train", 1), 20)
    texts = (text for family in families for text in captions_of(family[0], "cs"))
    assert there == train_tokenizer(texts, 200).to_str() + "\n"


def test_special_tokens_come_first_and_are_the_only_ones(tokenizer: Tokenizer) -> None:
    """Padding is 0, which masks are made from; a letter written "##a" is not a token of its own."""
    added = {id_: token.content for id_, token in tokenizer.get_added_tokens_decoder().items()}

    assert added == {0: PAD, 1: UNKNOWN, 2: CLS, 3: SEP}
    assert "##a" not in tokenizer.encode("##a").tokens


def test_every_caption_can_be_read_back(tokenizer: Tokenizer) -> None:
    """Nothing in a caption is unknown, in any language; only its case is lost."""
    for text in captions():
        encoding = tokenizer.encode(text)
        assert UNKNOWN not in encoding.tokens
        assert "".join(tokenizer.decode(encoding.ids).split()) == "".join(text.lower().split())


def test_captions_fit_the_model(tokenizer: Tokenizer) -> None:
    """The longest stays under the 64 tokens that the model has places for."""
    assert max(len(tokenizer.encode(text).ids) for text in captions()) <= 64


def test_spellings_of_one_letter_are_one(tokenizer: Tokenizer) -> None:
    """A hook typed as a combining character is the same letter; so is a capital."""
    assert tokenizer.encode("DVE\u030c Koc\u030cky").ids == tokenizer.encode("dvě kočky").ids
