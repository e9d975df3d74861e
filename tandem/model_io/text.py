"""Text → token ids, the same in training's vocabulary, export and serving."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tandem.errors import TextEmpty, TextTooLong

MAX_TEXT_BYTES = 8_192


class TextPreprocessor:
    """Splits texts as the model was trained to. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, max_text_tokens: int) -> None:
        """Takes a copy of `tokenizer`: what is set here is not its owner's."""
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        # A text that says "[SEP]" or "[PAD]" means those letters.
        self._tokenizer.encode_special_tokens = True
        # A tokenizer file may carry both; we refuse what is too long, and pad by bucket.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_text_tokens = max_text_tokens

    @classmethod
    def open(cls, tokenizer_path: Path, max_text_tokens: int) -> "TextPreprocessor":
        """Raises ValueError where the file is no tokenizer."""
        try:
            return cls(Tokenizer.from_file(str(tokenizer_path)), max_text_tokens)
        except Exception as error:  # the library raises the bare class
            raise ValueError(f"{tokenizer_path} is no tokenizer: {error}") from error

    def token_ids(self, text: str) -> NDArray[np.int32]:
        """Returns int32 [T] with [CLS] and [SEP].

        Raises TextEmpty for a text in which the tokenizer finds nothing but white space and control
        characters, TextTooLong over MAX_TEXT_BYTES or the model's limit of tokens: a text is taken
        whole or refused, never cut in silence.
        """
        if not text.strip():
            raise TextEmpty
        byte_count = len(text.encode())
        if byte_count > MAX_TEXT_BYTES:
            raise TextTooLong(got=byte_count, limit=MAX_TEXT_BYTES, unit="bytes")
        encoding = self._tokenizer.encode(text)
        if all(encoding.special_tokens_mask):
            raise TextEmpty
        ids = encoding.ids
        if len(ids) > self._max_text_tokens:
            raise TextTooLong(got=len(ids), limit=self._max_text_tokens, unit="tokens")
        return np.asarray(ids, dtype=np.int32)
