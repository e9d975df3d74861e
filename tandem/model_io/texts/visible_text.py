"""Normalises a text to what a reader sees, for every tokenizer in training, ingest and search.

Two texts that look alike should be the same text. So compatibility forms become plain letters
(NFKC: full-width letters and ligatures, among others), invisible characters are removed, and any
white space becomes one space. Joiners and variation selectors are also removed: an emoji sequence
becomes the emoji that it consists of.

Every change here needs a new VISIBLE_TEXT_VERSION, because a model's tokens depend on it.
"""

import re
import unicodedata
from functools import cache
from typing import Final

VISIBLE_TEXT_VERSION: Final = 1
"""Part of a model's fingerprint, because another version may give other tokens."""

MAX_MARK_RUN: Final = 30
"""Limits combining marks in a row, as Unicode's Stream-Safe Text Format; no script needs more."""

# Default_Ignorable_Code_Point of Unicode 16's DerivedCoreProperties.txt, which Python lacks: 174
# assigned code points and those reserved for more.
_DEFAULT_IGNORABLE: Final = (
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian selectors and vowel separator
    (0x200B, 0x200F),  # zero-width space, joiners, directional marks
    (0x202A, 0x202E),  # embeddings and overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors
    (0xFEFF, 0xFEFF),  # byte-order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0xE0FFF),  # tags, more variation selectors
)
# Not in that list, but also invisible.
_ALSO_IGNORED: Final = (
    (0x0000, 0x0008),  # controls, except white space
    (0x000E, 0x001B),
    (0x007F, 0x0084),
    (0x0086, 0x009F),
    (0xFFF9, 0xFFFB),  # interlinear annotation
    (0x13430, 0x13440),  # Egyptian format controls
    (0x1D159, 0x1D159),  # musical null notehead
)
_BRAILLE_BLANK: Final = "\u2800"
# Letters by category, and combining marks after NFKC.
_HALF_WIDTH_MARKS: Final = "\uff9e\uff9f"


class TextNotUnicode(ValueError):
    """A text contains a lone surrogate, which is not Unicode text."""

    def __init__(self, code_unit: str, place: int) -> None:
        super().__init__(
            f"the text has a lone surrogate (U+{ord(code_unit):04X}) at "
            f"place {place:,}; write the whole character, or leave it out"
        )


def visible_text(text: str) -> str:
    r"""Returns the visible part of a text, which may be empty.

    The function is idempotent. It drops combining marks after MAX_MARK_RUN in a row. Raises
    TextNotUnicode for a lone surrogate.

    >>> visible_text("\ufefftwo\u200b  d\u00adogs\u2028")
    'two dogs'
    >>> visible_text("\u200b\u3164\u2800")
    ''
    """
    if not (text.isascii() and text.isprintable()):
        if half := _surrogates().search(text):
            raise TextNotUnicode(half[0], half.start())
        text = _invisible().sub("", text).replace(_BRAILLE_BLANK, " ")
        # Before, because NFKC sorts a run of marks in quadratic time; and
        # after it, because it turns some marks into two.
        text = _marks_bounded(unicodedata.normalize("NFKC", _marks_bounded(text)))
    return " ".join(text.split())


def folded_text(text: str) -> str:
    r"""Returns a key that is equal for texts that differ only in case or invisible characters.

    >>> folded_text("Two\u00a0Dogs ") == folded_text("two d\u00adogs")
    True
    """
    try:
        return visible_text(text).casefold()
    except TextNotUnicode:  # the reader of the text reports it, with its name
        return text.casefold()


def _marks_bounded(text: str) -> str:
    if len(text) <= MAX_MARK_RUN:
        return text
    kept, run = [], 0
    for letter in text:
        run = run + 1 if _is_mark(letter) else 0
        if run <= MAX_MARK_RUN:
            kept.append(letter)
    return "".join(kept)


def _is_mark(letter: str) -> bool:
    return not letter.isascii() and (
        unicodedata.category(letter)[0] == "M" or letter in _HALF_WIDTH_MARKS
    )


@cache
def _invisible() -> re.Pattern[str]:
    ranges = (*_DEFAULT_IGNORABLE, *_ALSO_IGNORED)
    return re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges) + "]")


@cache
def _surrogates() -> re.Pattern[str]:
    return re.compile("[\ud800-\udfff]")
