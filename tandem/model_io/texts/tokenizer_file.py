"""Reads and checks a tokenizer's file; errors name it."""

from pathlib import Path
from typing import Final

from tokenizers import Encoding, Tokenizer

from tandem.errors import ModelOutputInvalid
from tandem.model_io.texts.tokenizer_steps import check_steps
from tandem.platform.files.json_object import FileInvalid, check_file

# Unknown words, a mark and a letter: a tokenizer that splits these splits any text.
_PROBES = ("", "a", "qzx\U0010fffd \U0001f3bb", "?! 1", "".join(map(chr, range(33, 0x600))))
# The most that published tokenizers make is about one a byte.
_MAX_TOKENS_PER_BYTE: Final = 4
_MAX_ADDED_TOKENS: Final = 64


def read_tokenizer_file(path: Path) -> Tokenizer:
    """Returns the tokenizer; raises FileInvalid naming the file and the fault."""
    check_file(path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except BaseException as error:
        _check_own(error)
        raise FileInvalid(f"{path} is not a tokenizer: {error}") from error
    try:
        check_steps(tokenizer)
    except ValueError as error:
        raise FileInvalid(f"{path}: {error}") from error
    return tokenizer


def encoded(tokenizer: Tokenizer, text: str, *, special_tokens: bool = True) -> Encoding:
    """Returns the text's tokens, without holding the GIL; without offsets if with special tokens.

    Raises ModelOutputInvalid if the tokenizer fails, or makes far more tokens than the text has
    bytes.
    """
    # `encode` would hold the GIL.
    encode = tokenizer.encode_batch_fast if special_tokens else tokenizer.encode_batch
    try:
        [encoding] = encode([text], add_special_tokens=special_tokens)
    except BaseException as error:
        _check_own(error)
        raise ModelOutputInvalid(model="tokenizer", why=str(error)) from error
    count, limit = len(encoding), _MAX_TOKENS_PER_BYTE * len(text.encode()) + _MAX_ADDED_TOKENS
    if count > limit:
        why = f"{count:,} tokens of a text for which {limit:,} are the most"
        raise ModelOutputInvalid(model="tokenizer", why=why)
    return encoding


def _check_own(error: BaseException) -> None:
    """Raises the error again if it is not the library's: a plain Exception, or a panic of Rust."""
    if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
        raise error


def check_tokenizer(tokenizer: Tokenizer, vocabulary_size: int) -> None:
    """Raises ValueError unless it splits any text, into ids below a model's vocabulary size."""
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise ValueError("the tokenizer has no tokens at all")
    word, last = max(vocabulary.items(), key=lambda item: item[1])
    if last >= vocabulary_size:
        raise ValueError(
            f"the tokenizer gives {word!r} the id {last:,}, and the model has "
            f"{vocabulary_size:,} tokens; they are not of one checkpoint; take all files of one"
        )
    if getattr(tokenizer.model, "dropout", None):
        raise ValueError(
            f"the tokenizer splits words at random (dropout {tokenizer.model.dropout}), as for "
            "training; set dropout to null in its model"
        )
    check_steps(tokenizer)
    for text in _PROBES:
        try:
            ids = encoded(tokenizer, text).ids
        except ModelOutputInvalid as error:
            raise ValueError(f"the tokenizer cannot split {text!r}: {error}") from error
        if ids and max(ids) >= vocabulary_size:
            raise ValueError(
                f"the tokenizer splits {text!r} into ids up to {max(ids):,}, and the model has "
                f"{vocabulary_size:,} tokens; they are not of one checkpoint; take all files of one"
            )
