"""A tokenizer.json and its class in transformers split texts alike, or the folder is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tandem.modeling.families.reader import read_published_model
from tandem.modeling.published.files import PublishedCheckpointInvalid
from tests.support.modeling.published_pairs import change_json, write_json

Published = Callable[[str], Path]

# Words that only a setting tells apart, in the place of some that the tests do not need. The mask
# is there because transformers would add one.
_WORDS = {"umbrella": "café", "left": "cafe", "of": "中", "##s": "[MASK]"}


@pytest.fixture(name="folder")
def _folder(published: Published, tmp_path: Path) -> Path:
    return _with_words(published("vilt"), tmp_path / "folder")


def _with_words(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy)

    def replaced(told: Any) -> None:
        vocabulary = told["model"]["vocab"]
        for word, other in _WORDS.items():
            vocabulary[other] = vocabulary.pop(word)

    _change_tokenizer(copy, replaced)
    return copy


def _change_tokenizer(folder: Path, change: Callable[[Any], object]) -> None:
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    change(told)
    write_json(folder / "tokenizer.json", told)


def test_what_agrees_is_read(folder: Path) -> None:
    read_published_model(folder)
    change_json(folder / "tokenizer_config.json", strip_accents=False)
    _change_tokenizer(folder, lambda told: told["normalizer"].update(strip_accents=False))
    read_published_model(folder)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"strip_accents": False}, "café"),
        ({"tokenize_chinese_chars": False}, "中国の狗"),
        ({"do_lower_case": False, "strip_accents": True}, "TWO DOGS"),
    ],
)
def test_a_setting_that_the_file_does_not_follow_is_refused(
    folder: Path, fields: dict[str, object], text: str
) -> None:
    change_json(folder / "tokenizer_config.json", **fields)
    with pytest.raises(PublishedCheckpointInvalid, match=f"{text}.*save_pretrained"):
        read_published_model(folder)


def test_the_remedy_in_the_message_makes_both_agree(folder: Path) -> None:
    from transformers import AutoTokenizer

    change_json(folder / "tokenizer_config.json", strip_accents=False)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    [tokenizer] = read_published_model(folder).tokenizers.values()
    assert tokenizer.encode("café").tokens[1:2] == ["café"]


def test_a_model_of_regions_is_held_to_it_too(published: Published, tmp_path: Path) -> None:
    folder = _with_words(published("visual_bert"), tmp_path / "folder")
    read_published_model(folder)
    change_json(folder / "tokenizer_config.json", strip_accents=False)
    with pytest.raises(PublishedCheckpointInvalid, match=r"café.*save_pretrained"):
        read_published_model(folder)
