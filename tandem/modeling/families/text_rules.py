"""Reads how a published model wants its texts: tokenizer, padding and length, from its files.

What is served is tokenizer.json. transformers' classes replace parts of it: BERT's follow
`do_lower_case`, `strip_accents` and `tokenize_chinese_chars` of tokenizer_config.json and put their
own tokens around a text, and CLIP's make letters lower case whatever the file says. So the file is
held to what the library makes of the folder, and a difference that changes token ids is refused.
"""

from typing import Any, Final

from tokenizers import Tokenizer

from tandem.model_io.texts.text_rules import TextRules, text_length_buckets
from tandem.modeling.published.files import (
    SAVE_ONCE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    check_vocabulary,
    stored_tokenizer,
)
from tandem.modeling.published.folder import PublishedFolder

# Some files write 1e30 for "no limit".
_MAX_LENGTH: Final = 100_000
# Words that most vocabularies have, in two cases.
_WORDS: Final = ("two dogs", "TWO DOGS", "a cat", "A CAT", "photo of one man", "E I O U", "e i o u")
# Besides case, what classes have settings for: accents, Chinese characters, digits and marks, and
# with all of them the tokens around a text.
_TEXTS: Final = (*_WORDS, "café", "Naïve Zürich", "中国の狗", "it's 2 of 31?", "a-b_c #d")


def read_text_rules(
    folder: PublishedFolder,
    *,
    vocabulary_size: int,
    position_count: int,
    is_fixed_length: bool = False,
    reads_padding: bool = False,
) -> tuple[Tokenizer, TextRules]:
    """Returns the folder's tokenizer and its rules.

    `position_count` is the longest text that the text tower takes. With `is_fixed_length` every
    text is padded to the longest. Refuses a tokenizer of another model, one that pads or cuts on
    the left, and one that needs other libraries to be read.
    """
    tokenizer, names = stored_tokenizer(folder.path)
    for name in names:
        folder.file(name)
    check_vocabulary(tokenizer, vocabulary_size)
    library = library_tokenizer(folder)
    if folder.has(TOKENIZER) and not reads_padding:  # a SigLIP's is completed by its own reader
        check_tokens(folder, tokenizer, library)
    for what in ("padding", "truncation"):
        if (side := getattr(library, f"{what}_side", "right")) != "right":
            raise folder.refused(
                f"its tokenizer's {what} is on the {side}, and only right is served: take another "
                f"checkpoint, or write {what}_side into {TOKENIZER_CONFIG} if training had it right"
            )
    stated = folder.optional_fields(TOKENIZER_CONFIG).get("model_max_length")
    max_tokens = position_count
    if isinstance(stated, int | float) and 1 < stated <= _MAX_LENGTH:
        max_tokens = min(position_count, int(stated))
    pad_id = getattr(library, "pad_token_id", None)
    if pad_id is None and tokenizer.padding is not None:
        pad_id = tokenizer.padding["pad_id"]
    if pad_id is None or pad_id >= vocabulary_size:
        raise folder.refused(
            f"its tokenizer lacks a padding token; set pad_token in {TOKENIZER_CONFIG}"
        )
    return tokenizer, TextRules(
        tokenizer=TOKENIZER,
        max_tokens=max_tokens,
        lengths=(max_tokens,) if is_fixed_length else text_length_buckets(max_tokens),
        vocabulary_size=vocabulary_size,
        pad_id=pad_id,
        reads_padding=reads_padding,
    )


def check_end_token(
    folder: PublishedFolder, tokenizer: Tokenizer, wanted: int | None = None
) -> None:
    """Refuses a tokenizer that ends texts with nothing, or not with the id where a model pools."""
    end = _ids(tokenizer, "")[-1:]
    if not end or wanted not in (None, *end):
        raise folder.refused(
            f"its tokenizer ends texts with {end} and its configuration with {wanted}; they are "
            f"not of one checkpoint; take all files of one, or {SAVE_ONCE}"
        )


def check_tokens(folder: PublishedFolder, tokenizer: Tokenizer, library: Any) -> None:  # noqa: ANN401  of transformers
    """Refuses a tokenizer that splits texts otherwise than that of the library, if it made one."""
    if library is None:
        return
    # Special tokens are letters in a text, as others are.
    added = [each.content for each in library.added_tokens_decoder.values() if not each.special]
    for text in (*_TEXTS, *added):
        ours, theirs = _ids(tokenizer, text), _ids(library.backend_tokenizer, text)
        if ours != theirs:
            raise folder.refused(
                f"its tokenizer.json splits {text!r} into {ours}, and what transformers makes of "
                f"it by its class and {TOKENIZER_CONFIG} into {theirs}; correct "
                f"{TOKENIZER_CONFIG}, or {SAVE_ONCE}"
            )


def library_tokenizer(folder: PublishedFolder) -> Any:  # noqa: ANN401  of transformers
    """Returns the tokenizer that transformers makes of the folder, or None if it makes none."""
    from transformers import AutoTokenizer

    try:
        made = AutoTokenizer.from_pretrained(folder.path, trust_remote_code=False)
        for text in _TEXTS:
            made.backend_tokenizer.encode(text)
    except Exception:  # its steps may raise anything, for a missing library or an unknown class
        return None
    return made


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the ids of a short text, without the padding that a file may ask for."""
    split = tokenizer.encode(text)
    return [each for each, counts in zip(split.ids, split.attention_mask, strict=True) if counts]
