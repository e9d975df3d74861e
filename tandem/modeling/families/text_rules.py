"""Reads how a published model wants its texts: tokenizer, padding and length, from its files.

Padding and truncation are read and not stripped, since a model may depend on them.
"""

from collections.abc import Mapping
from typing import Any, Final

from tokenizers import Tokenizer

from tandem.files.json_object import shown
from tandem.modeling.families.tokenizer_class import (
    check_added_tokens,
    check_class,
    padding_side,
)
from tandem.modeling.published.files import (
    SAVE_ONCE,
    TOKENIZER,
    check_vocabulary,
    stored_tokenizer,
)
from tandem.modeling.published.folder import PublishedFolder
from tandem.texts.text_rules import TextRules, text_length_buckets

TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_SPECIAL_TOKENS: Final = "special_tokens_map.json"
# What transformers' classes pad with where no file names a token: of CLIP, of BERT, of XLM-R and
# RoBERTa. SigLIP, whose embedding depends on it, has to name one.
_USUAL_PADDING: Final = ("<|endoftext|>", "[PAD]", "<pad>")
# Some files write 1e30 for "no limit".
_MAX_LENGTH: Final = 100_000


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
    tokenizer = read_tokenizer(folder, vocabulary_size)
    if folder.has(TOKENIZER):
        check_added_tokens(folder, tokenizer)
        if not reads_padding:  # a SigLIP's is completed by its own reader
            check_class(folder, tokenizer)
    config = folder.optional_fields(TOKENIZER_CONFIG)
    cut_side = config.get("truncation_side", (tokenizer.truncation or {}).get("direction", "right"))
    for what, side in (("padding", padding_side(folder, tokenizer)), ("truncation", cut_side)):
        if side != "right":
            raise folder.refused(
                f"its tokenizer's {what} is on the {side}, and only right is served: take another "
                f"checkpoint, or write {what}_side into {TOKENIZER_CONFIG} if training had it right"
            )
    max_tokens = min(position_count, _stated_length(config) or position_count)
    return tokenizer, TextRules(
        tokenizer=TOKENIZER,
        max_tokens=max_tokens,
        lengths=(max_tokens,) if is_fixed_length else text_length_buckets(max_tokens),
        vocabulary_size=vocabulary_size,
        pad_id=_pad_id(folder, tokenizer, config, reads_padding),
        reads_padding=reads_padding,
    )


def read_tokenizer(folder: PublishedFolder, vocabulary_size: int) -> Tokenizer:
    """Returns the tokenizer as its file says; refuses that of another model."""
    tokenizer, names = stored_tokenizer(folder.path)
    for name in names:
        folder.file(name)
    check_vocabulary(tokenizer, vocabulary_size)
    return tokenizer


def check_end_token(
    folder: PublishedFolder, tokenizer: Tokenizer, wanted: int | None = None
) -> None:
    """Refuses a tokenizer that ends texts with nothing, or not with the id where a model pools."""
    split = tokenizer.encode("")
    counted = [each for each, counts in zip(split.ids, split.attention_mask, strict=True) if counts]
    if not counted or wanted not in (None, counted[-1]):
        raise folder.refused(
            f"its tokenizer ends texts with {counted[-1:]} and its configuration with {wanted}; "
            f"they are not of one checkpoint; take all files of one, or {SAVE_ONCE}"
        )


def _stated_length(config: Mapping[str, Any]) -> int | None:
    """Returns the limit of texts; that of tokenizer.json alone is none, as in transformers."""
    length = config.get("model_max_length")
    if not isinstance(length, int | float) or not 1 < length <= _MAX_LENGTH:
        return None
    return int(length)


def _pad_id(
    folder: PublishedFolder, tokenizer: Tokenizer, config: Mapping[str, Any], reads_padding: bool
) -> int:
    token = config.get("pad_token", folder.optional_fields(_SPECIAL_TOKENS).get("pad_token"))
    if isinstance(token, dict):  # with the settings of an added token
        token = token.get("content")
    if token is None and tokenizer.padding is not None:
        return int(tokenizer.padding["pad_id"])
    if token is None and not reads_padding:
        known = (each for each in _USUAL_PADDING if tokenizer.token_to_id(each) is not None)
        token = next(known, None)
    pad_id = tokenizer.token_to_id(token) if isinstance(token, str) else None
    if pad_id is None:
        raise folder.refused(
            f"its padding token is {shown(token)}, which its tokenizer lacks; set pad_token in "
            f"{TOKENIZER_CONFIG}"
        )
    return int(pad_id)
