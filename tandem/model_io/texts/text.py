"""Splits texts into token ids, the same way in training, export and serving.

Only the visible part of a text is split into tokens (visible_text.py).
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tandem.contract.content import MAX_LONG_TEXT_BYTES as MAX_LONG_TEXT_BYTES
from tandem.contract.content import TextUse, TruncationPolicy
from tandem.errors import TextEmpty, TextTooLong
from tandem.model_io.texts.text_rules import TextRules
from tandem.model_io.texts.tokenizer_file import encoded, read_tokenizer_file
from tandem.model_io.texts.visible_text import visible_text

MAX_TEXT_BYTES: Final = 8_192
"""Limits a text that must be read completely."""
MAX_WINDOW_COUNT: Final = 32

# The overlap of neighbouring windows, so that a phrase at a boundary is complete in one of them.
_OVERLAP_SHARE: Final = 0.25

TokenIds = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class TextWindows:
    """Holds what the model reads of a text: each window's ids, int32 [T] with special tokens."""

    windows: tuple[TokenIds, ...]
    text_use: TextUse


class TextPreprocessor:
    """Splits texts as in training. Safe to use from several threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_text_tokens: int,
        *,
        is_lower_case: bool = False,
        first_id: int | None = None,
        prompt: str = "",
        policy: TruncationPolicy = TruncationPolicy.ERROR,
    ) -> None:
        """Copies `tokenizer`, so that its owner's settings do not change.

        The options are those of TextRules; padding is up to the caller. `policy`, ERROR or
        TRUNCATE, is that of `token_ids`.
        """
        self._tokenizer = Tokenizer.from_str(tokenizer.to_str())
        # "[SEP]" and "[PAD]" in a text are plain letters.
        self._tokenizer.encode_special_tokens = True
        # A tokenizer file may set both; we truncate by the caller's policy, and pad by bucket.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._max_text_tokens = max_text_tokens
        self._is_lower_case = is_lower_case
        self._first_id = first_id
        self._prompt = prompt
        self._policy = policy

    @classmethod
    def by_rules(cls, tokenizer: Tokenizer, rules: TextRules) -> "TextPreprocessor":
        return cls(
            tokenizer,
            rules.max_tokens,
            is_lower_case=rules.is_lower_case,
            first_id=rules.first_id,
            prompt=rules.prompt,
        )

    @classmethod
    def open(cls, folder: Path, rules: TextRules) -> "TextPreprocessor":
        """Reads the tokenizer of the rules; raises ValueError if its file is not a tokenizer."""
        return cls.by_rules(read_tokenizer_file(folder / rules.tokenizer), rules)

    def token_ids(self, text: str) -> TokenIds:
        """Returns int32 [T] with special tokens for a text; raises as `windows`."""
        [ids] = self.windows(text, self._policy).windows
        return ids

    def windows(self, text: str, policy: TruncationPolicy) -> TextWindows:
        """Returns what the model reads of the text under the policy, and how much of it that is.

        This is one window, unless BEST_WINDOW gets a text over the model's token limit: then it is
        windows of that limit, spread evenly from the first token to the last. They overlap by at
        least a quarter, up to MAX_WINDOW_COUNT windows; in a text that would need more, the gaps
        are not read.

        Raises TextEmpty for a text without visible characters or tokens. Raises TextTooLong, with
        ERROR over MAX_TEXT_BYTES or the token limit, with other policies over MAX_LONG_TEXT_BYTES.
        Raises TextNotUnicode for a lone surrogate, and ModelOutputInvalid if the tokenizer fails.
        """
        text = _sized(text, policy)
        ids, places = self._split(text)
        if not len(places):
            raise TextEmpty
        if len(ids) <= self._max_text_tokens:
            return TextWindows((ids,), TextUse(len(ids), len(ids)))
        if policy is TruncationPolicy.ERROR:
            raise TextTooLong(got=len(ids), limit=self._max_text_tokens, unit="tokens")
        first, end = int(places[0]), int(places[-1]) + 1
        special_count = first + len(ids) - end
        room = self._max_text_tokens - special_count
        starts = [0]
        if policy is TruncationPolicy.BEST_WINDOW:
            starts = _window_starts(end - first, room)
        windows = tuple(
            np.concatenate([ids[:first], ids[first + start :][:room], ids[end:]])
            for start in starts
        )
        return TextWindows(windows, TextUse(len(ids), special_count + _covered_count(starts, room)))

    def passages(self, text: str, policy: TruncationPolicy) -> tuple[str, ...]:
        """Returns the visible text of each window of `windows`; errors as there."""
        text = _sized(text, policy)
        ids, places = self._split(text)
        if len(ids) <= self._max_text_tokens:
            return (text,)
        room = self._max_text_tokens - (len(ids) - len(places))
        starts = [0]
        if policy is TruncationPolicy.BEST_WINDOW:
            starts = _window_starts(len(places), room)
        read, cased = self._read(text), self._prompt + text
        offsets = encoded(self._tokenizer, read, special_tokens=False).offsets
        if len(read) == len(cased):  # a few letters are longer in lower case
            read = cased
        parts = (read[offsets[start][0] : offsets[start + room - 1][1]] for start in starts)
        return tuple(part.removeprefix(self._prompt).strip() for part in parts)

    def _split(self, text: str) -> tuple[TokenIds, NDArray[np.intp]]:
        """Returns the ids, int32 [T], and the places of those that are not special tokens."""
        encoding = encoded(self._tokenizer, self._read(text))
        ids = np.asarray(encoding.ids, dtype=np.int32)
        if self._first_id is not None:
            ids[0] = self._first_id
        [places] = np.nonzero(np.asarray(encoding.special_tokens_mask) == 0)
        return ids, places

    def _read(self, text: str) -> str:
        return self._prompt + (text.lower() if self._is_lower_case else text)


def _sized(text: str, policy: TruncationPolicy) -> str:
    """Returns the visible text; checks the size of the text before and after."""
    limit = MAX_TEXT_BYTES if policy is TruncationPolicy.ERROR else MAX_LONG_TEXT_BYTES
    _check_bytes(text, limit)
    text = visible_text(text)
    if not text:
        raise TextEmpty
    # One letter of a compatibility form can become eighteen plain letters.
    _check_bytes(text, limit)
    return text


def _check_bytes(text: str, limit: int) -> None:
    # visible_text rejects a lone surrogate; here only its size counts.
    byte_count = len(text.encode(errors="surrogatepass"))
    if byte_count > limit:
        raise TextTooLong(got=byte_count, limit=limit, unit="bytes")


def _window_starts(token_count: int, room: int) -> list[int]:
    """Returns the starts of windows of `room` tokens in a longer text."""
    last = token_count - room
    stride = room - int(room * _OVERLAP_SHARE)
    count = min(1 + -(-last // stride), MAX_WINDOW_COUNT)
    return [round(last * number / (count - 1)) for number in range(count)]


def _covered_count(starts: list[int], room: int) -> int:
    steps = (after - start for start, after in pairwise(starts))
    return sum(min(room, step) for step in steps) + room
