"""Reads and checks a tokenizer's file; errors name it."""

from pathlib import Path

from tokenizers import Tokenizer

from tandem.model_io.json_object import FileInvalid, check_file

# Unknown words, a mark and a letter: a tokenizer that splits these splits any text.
_PROBES = ("", "a", "qzx\U0010fffd \U0001f3bb", "?! 1")


def read_tokenizer_file(path: Path) -> Tokenizer:
    """Returns the tokenizer; raises FileInvalid naming the file and the fault."""
    check_file(path)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise FileInvalid(f"{path} is not a tokenizer: {error}") from error


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
    for text in _PROBES:
        try:
            ids = tokenizer.encode(text).ids
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"the tokenizer cannot split {text!r}: {error}") from error
        if ids and max(ids) >= vocabulary_size:
            raise ValueError(
                f"the tokenizer splits {text!r} into ids up to {max(ids):,}, and the model has "
                f"{vocabulary_size:,} tokens; they are not of one checkpoint; take all files of one"
            )
