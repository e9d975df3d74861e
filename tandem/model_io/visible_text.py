"""A text as a reader sees it: what every tokenizer here is given, in training, ingest and search.

Two texts that look alike are to be one text. So compatibility forms are their plain letters (NFKC:
full-width and ligatures, among others), what shows nothing is left out, and white space of any
kind and length is one space. Among what is left out are joiners and variation selectors: an emoji
sequence is the emoji that it is made of.

Change nothing here without a new VISIBLE_TEXT_VERSION: a model's tokens hang on it.
"""

import re
import unicodedata
from functools import cache
from typing import Final

VISIBLE_TEXT_VERSION: Final = 1
"""Part of a model's fingerprint: other versions may split a text into other tokens."""

MAX_MARK_RUN: Final = 30
"""Combining marks in a row, as in Unicode's Stream-Safe Text Format; no script needs as many."""

# Default_Ignorable_Code_Point of Unicode 16's DerivedCoreProperties.txt, which Python does not
# tell: 174 assigned ones and what is kept free for more of them.
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
# Not in that list, and as invisible.
_ALSO_IGNORED: Final = (
    (0x0000, 0x0008),  # controls, but for those that are white space
    (0x000E, 0x001B),
    (0x007F, 0x0084),
    (0x0086, 0x009F),
    (0xFFF9, 0xFFFB),  # interlinear annotation
    (0x13430, 0x13440),  # Egyptian format controls
    (0x1D159, 0x1D159),  # musical null notehead
)
_BRAILLE_BLANK: Final = "\u2800"
# Letters by their category, and combining marks behind NFKC.
_HALF_WIDTH_MARKS: Final = "\uff9e\uff9f"


class TextNotUnicode(ValueError):
    """A text has half of a surrogate pair in it, which is no character."""

    def __init__(self, code_unit: str, place: int) -> None:
        super().__init__(
            f"the text has half a character (U+{ord(code_unit):04X}, an unpaired surrogate) at "
            f"place {place:,}; write the whole character, or leave it out"
        )


def visible_text(text: str) -> str:
    r"""Returns what can be seen of a text; nothing where nothing can.

    The same again for what it returns. Of more than MAX_MARK_RUN combining marks in a row the
    rest is left out. Raises TextNotUnicode for an unpaired surrogate.

    >>> visible_text("\ufefftwo\u200b  d\u00adogs\u2028")
    'two dogs'
    >>> visible_text("\u200b\u3164\u2800")
    ''
    """
    if not (text.isascii() and text.isprintable()):
        if half := _surrogates().search(text):
            raise TextNotUnicode(half[0], half.start())
        text = _invisible().sub("", text).replace(_BRAILLE_BLANK, " ")
        # Before, for NFKC sorts a run of marks in a time that grows with the run's square; and
        # behind it, for some marks are two then.
        text = _marks_bounded(unicodedata.normalize("NFKC", _marks_bounded(text)))
    return " ".join(text.split())


def folded_text(text: str) -> str:
    r"""Returns what is equal of two texts that say the same, letter case apart.

    >>> folded_text("Two\u00a0Dogs ") == folded_text("two d\u00adogs")
    True
    """
    try:
        return visible_text(text).casefold()
    except TextNotUnicode:  # whoever reads it says so, and of what
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
