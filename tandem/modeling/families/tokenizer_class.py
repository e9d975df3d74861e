"""Compares a published tokenizer.json with what transformers makes of the folder by its class.

The library's classes replace parts of the file: BERT's follow `do_lower_case`, `strip_accents` and
`tokenize_chinese_chars` of tokenizer_config.json and put their own tokens around a text, and CLIP's
make letters lower case whatever the file says. The file is served, so a difference that changes
token ids is refused.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tokenizers import Tokenizer

from tandem.files.json_object import shown
from tandem.modeling.published.files import SAVE_ONCE
from tandem.modeling.published.folder import PublishedFolder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_CONFIG: Final = "tokenizer_config.json"
_ADDED: Final = "added_tokens.json"
# Words that most vocabularies have, in two cases.
_WORDS: Final = ("two dogs", "TWO DOGS", "a cat", "A CAT", "photo of one man", "E I O U", "e i o u")
# Besides case, what classes have settings for: accents, Chinese characters, digits and marks, and
# with all of them the tokens around a text.
_TEXTS: Final = (*_WORDS, "café", "Naïve Zürich", "中国の狗", "it's 2 of 31?", "a-b_c #d")


def check_class(folder: PublishedFolder, tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer.json that splits texts otherwise than its class in transformers does.

    A folder of which the library makes no tokenizer is served by its file.
    """
    made = _library_tokenizer(folder)
    if made is None:
        return
    library = made.backend_tokenizer
    for text in _TEXTS:
        if _ids(tokenizer, text) != _ids(library, text):
            raise folder.refused(
                f"its tokenizer.json splits {text!r} into {_ids(tokenizer, text)}, and what "
                f"transformers makes of it by its class and {_CONFIG} into {_ids(library, text)}; "
                f"correct {_CONFIG}, or {SAVE_ONCE}"
            )


def padding_side(folder: PublishedFolder, tokenizer: Tokenizer) -> str:
    """Returns where transformers pads: as the files say, or else by its class (Gemma's: left)."""
    stated = folder.optional_fields(_CONFIG).get("padding_side")
    if stated is None and tokenizer.padding is not None:
        stated = tokenizer.padding["direction"]
    return str(stated or getattr(_library_tokenizer(folder), "padding_side", "right"))


def check_added_tokens(folder: PublishedFolder, tokenizer: Tokenizer) -> None:
    """Refuses a folder whose other files add words that its tokenizer.json lacks."""
    for word, number in _added_words(folder).items():
        if tokenizer.token_to_id(word) != number:
            raise folder.refused(
                f"{_CONFIG} or {_ADDED} adds the token {shown(word)} with the id {shown(number)}, "
                f"which its tokenizer.json does not have; {SAVE_ONCE}"
            )


def _added_words(folder: PublishedFolder) -> Mapping[str, object]:
    """Returns the id of each added word; special tokens are letters in a text, as others are."""
    words: dict[str, object] = dict(folder.optional_fields(_ADDED))
    fields = folder.optional_fields(_CONFIG).get("added_tokens_decoder")
    special: set[str] = set()
    for number, token in (fields if isinstance(fields, dict) else {}).items():
        if not isinstance(token, dict) or not isinstance(token.get("content"), str):
            continue
        if token.get("special"):
            special.add(token["content"])
        else:
            words[token["content"]] = int(number) if str(number).isdecimal() else number
    return {word: number for word, number in words.items() if word not in special}


def _library_tokenizer(folder: PublishedFolder) -> "PreTrainedTokenizerFast | None":
    from transformers import AutoTokenizer

    try:
        made: Any = AutoTokenizer.from_pretrained(folder.path, trust_remote_code=False)
        for text in _TEXTS:
            made.backend_tokenizer.encode(text)
        return made
    except Exception:  # its steps may raise anything, for a missing library or an unknown class
        return None


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a short text, without the padding that a file may ask for."""
    split = tokenizer.encode(text)
    return [each for each, counts in zip(split.ids, split.attention_mask, strict=True) if counts]
