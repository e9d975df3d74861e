"""Scores by common words, in place of a model."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Set as AbstractSet

from tandem.contract.model_description import ModelDescription
from tandem.v1 import attribute_pb2, content_pb2, index_service_pb2

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


def content_words(content: content_pb2.Content) -> frozenset[str]:
    """Returns the words of a text, or of the bytes of an image if they are UTF-8."""
    if content.WhichOneof("data") == "text":
        return words_of(content.text)
    return words_of(content.image.decode("utf-8", "ignore"))


def item_words(item: index_service_pb2.Item) -> frozenset[str]:
    """Returns the words of an item's content; for an image also of its id and attributes."""
    words = content_words(item.content)
    if item.content.WhichOneof("data") == "text":
        return words
    attribute_texts = [_attribute_text(value) for value in item.attributes.values()]
    return words.union(words_of(item.item_id), *map(words_of, attribute_texts))


def keyword_words(item: index_service_pb2.Item) -> frozenset[str]:
    """Returns the words that a hybrid search finds an item by: its text's and its caption's."""
    caption = item.attributes.get("caption")
    text = _attribute_text(caption) if caption else ""
    return words_of(f"{item.content.text} {text}")


def embedding(words: AbstractSet[str]) -> content_pb2.Embedding:
    """Returns words hashed into a vector of unit length; without any, one of their own."""
    values = [0.0 if words else 1.0] + [0.0] * (_DIMENSION - 1)
    for word in words:
        values[zlib.crc32(word.encode()) % _DIMENSION] += 1.0
    length = math.hypot(*values)
    return content_pb2.Embedding(
        values=struct.pack(f"<{_DIMENSION}f", *(each / length for each in values))
    )


def words_of(text: str) -> frozenset[str]:
    """Returns the different words of a text: letters and digits, in lower case."""
    return frozenset(re.findall(r"[^\W_]+", text.lower()))


def similarity(query: AbstractSet[str], item: AbstractSet[str]) -> float:
    """Returns the share of common words: the cosine of both as vectors of 0 and 1."""
    if not query or not item:
        return 0.0
    return len(query & item) / math.sqrt(len(query) * len(item))


def match_logit(query: AbstractSet[str], item: AbstractSet[str]) -> float:
    """Returns a logit from -4, for no common word, to 4 for the same words."""
    every = query | item
    return 8.0 * len(query & item) / len(every) - 4.0 if every else -4.0


def probability(logit: float) -> float:
    """Returns the match probability of a logit."""
    return 1.0 / (1.0 + math.exp(-logit))


def _attribute_text(value: attribute_pb2.AttributeValue) -> str:
    return " ".join([value.text, *value.texts.values])
