"""Compares a published tokenizer.json with what transformers makes of the folder by its class.

The library's classes replace parts of the file: BERT's follow `do_lower_case` of
tokenizer_config.json, and CLIP's make letters lower case whatever the file says. The file is
served, so a difference that changes token ids is refused.
"""

from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer

from tandem.model_io.json_object import shown
from tandem.modeling.families.published_folder import PublishedFolder

SAVE_ONCE: Final = (
    "write its tokenizer.json once with transformers: "
    "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
_CONFIG: Final = "tokenizer_config.json"
_ADDED: Final = "added_tokens.json"
# Words that most vocabularies have, in two cases.
_WORDS: Final = ("two dogs", "a cat", "photo of one man", "e i o u")


def check_class(folder: PublishedFolder, tokenizer: Tokenizer) -> None:
    """Refuses a tokenizer.json that keeps letters' case where its class does not, or the reverse.

    A folder of which the library makes no tokenizer is served by its file.
    """
    ours, theirs = _ignores_case(tokenizer), _library_ignores_case(folder)
    if theirs is not None and ours != theirs:
        does = "makes letters lower case" if ours else "keeps the case of letters"
        raise folder.refused(
            f"its tokenizer.json {does}, and what transformers makes of it by its class and "
            f"{_CONFIG} does not; correct do_lower_case there, or {SAVE_ONCE}"
        )


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


def _library_ignores_case(folder: PublishedFolder) -> bool | None:
    from transformers import AutoTokenizer

    try:
        made: Any = AutoTokenizer.from_pretrained(folder.path, trust_remote_code=False)
        return _ignores_case(made.backend_tokenizer)
    except Exception:  # its steps may raise anything, for a missing library or an unknown class
        return None


def _ignores_case(tokenizer: Tokenizer) -> bool:
    """Returns whether words in capitals have the ids of those without."""
    return all(tokenizer.encode(word.upper()).ids == tokenizer.encode(word).ids for word in _WORDS)
