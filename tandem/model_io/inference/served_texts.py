"""Splits a text for a served model: into the ids that it embeds, and those that it pairs.

Both are the same where one encoder reads both. Otherwise they have their own rules: BLIP begins a
pair with another token, and two families have two tokenizers.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import TextUse, TruncationPolicy
from tandem.model_io.repository.manifest import Manifest
from tandem.model_io.texts.text import TextPreprocessor, TokenIds

_NO_IDS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class ServedText:
    """Holds the windows of a text twice: int32 [T] as `embed_text` reads each, and as pairs do."""

    windows: tuple[TokenIds, ...]
    pair_windows: tuple[TokenIds, ...]
    """Empty arrays if the model has no `score_pair`."""
    text_use: TextUse


class ServedTexts:
    """Splits texts by a model's rules. Safe to use from several threads."""

    def __init__(
        self, text: TextPreprocessor, pair_text: TextPreprocessor | None, *, is_same: bool
    ) -> None:
        """Set `is_same` if both give the same ids. Without `pair_text` the model reads no pairs."""
        self._text = text
        self._pair_text = pair_text
        self._is_same = is_same

    @classmethod
    def open(cls, repository: Path, manifest: Manifest) -> "ServedTexts":
        """Reads the model's tokenizers; raises ValueError for an invalid file."""
        rules = manifest.pair_text
        return cls(
            TextPreprocessor.open(repository, manifest.text),
            TextPreprocessor.open(repository, rules) if rules is not None else None,
            is_same=rules == manifest.text,
        )

    def windows(self, text: str, policy: TruncationPolicy) -> ServedText:
        """Returns what the model reads of the text; errors as TextPreprocessor.windows."""
        embedded = self._text.windows(text, policy)
        if self._pair_text is None:
            no_pairs = (_NO_IDS,) * len(embedded.windows)
            return ServedText(embedded.windows, no_pairs, embedded.text_use)
        if self._is_same:
            return ServedText(embedded.windows, embedded.windows, embedded.text_use)
        # A pair has one text, so that a passage is not split again.
        pair_policy = policy if policy is TruncationPolicy.ERROR else TruncationPolicy.TRUNCATE
        passages = self._text.passages(text, policy)
        paired = [self._pair_text.windows(each, pair_policy) for each in passages]
        cut = [each.text_use for each in paired if each.text_use.is_truncated]
        return ServedText(
            embedded.windows,
            tuple(each.windows[0] for each in paired),
            cut[0] if cut and not embedded.text_use.is_truncated else embedded.text_use,
        )
