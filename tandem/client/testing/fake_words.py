"""Scores by common words, in place of a model."""

import math
import re
import struct
import zlib
from collections.abc import Iterable
from typing import TypeAlias

from tandem.contract.content import Content, ImageContent, TextContent
from tandem.contract.filtering.attributes import AttributeValue
from tandem.contract.model_description import ModelDescription
from tandem.contract.search.ingest import IncomingItem

Words: TypeAlias = frozenset[str]

_DIMENSION = 64

MODEL = ModelDescription(
    fingerprint="fake-of-tandem-client-testing",
    family="fake",
    precision="fp32",
    embedding_dimension=_DIMENSION,
    max_text_token_count=64,
    max_text_bytes=8192,
    max_image_bytes=32 * 2**20,
    max_image_pixel_count=25_000_000,
)


def content_words(content: Content) -> Words:
    """Returns the words of a text, or of the bytes of an image if they are UTF-8."""
    match content:
        case TextContent(text):
            return words_of(text)
        case ImageContent(image_bytes):
            return words_of(image_bytes.decode("utf-8", "ignore"))
        case _:
            return frozenset()


def item_words(item: IncomingItem, content: Content) -> Words:
    """Returns the words of an item's content; for an image also of its id and attributes."""
    words = content_words(content)
    if isinstance(content, TextContent):
        return words
    return words.union(words_of(item.item_id), *map(_attribute_words, item.attributes.values()))


def keyword_words(item: IncomingItem, content: Content) -> Words:
    """Returns the words that a hybrid search finds an item by: its text's and its caption's."""
    words = _attribute_words(item.attributes.get("caption", ""))
    return words | content_words(content) if isinstance(content, TextContent) else words


def words_of(text: str) -> Words:
    """Returns the different words of a text: letters and digits, in lower case."""
    return frozenset(re.findall(r"[^\W_]+", text.lower()))


def embedding_bytes(words: Iterable[str]) -> bytes:
    """Returns words hashed into a vector of unit length; without any, one of their own."""
    values = [0.0] * _DIMENSION
    for word in words:
        values[zlib.crc32(word.encode()) % _DIMENSION] += 1.0
    if not any(values):
        values[0] = 1.0
    length = math.hypot(*values)
    return struct.pack(f"<{_DIMENSION}f", *(each / length for each in values))


def similarity(query: Words, item: Words) -> float:
    """Returns the share of common words: the cosine of both as vectors of 0 and 1."""
    if not query or not item:
        return 0.0
    return len(query & item) / math.sqrt(len(query) * len(item))


def match_logit(query: Words, item: Words) -> float:
    """Returns a logit from -4, for no common word, to 4 for the same words."""
    every = query | item
    return 8.0 * len(query & item) / len(every) - 4.0 if every else -4.0


def probability(logit: float) -> float:
    """Returns the match probability of a logit."""
    return 1.0 / (1.0 + math.exp(-logit))


def _attribute_words(value: AttributeValue) -> Words:
    texts = value if isinstance(value, tuple) else (value,)
    return words_of(" ".join(each for each in texts if isinstance(each, str)))
