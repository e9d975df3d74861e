"""Scores by common words, in place of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Set as AbstractSet

from tandem.v1 import attribute_pb2, content_pb2, index_service_pb2


def content_words(content: content_pb2.Content) -> frozenset[str]:
    """Returns the words of a text, or of the bytes of an image if they are UTF-8."""
    if content.WhichOneof("data") == "text":
        return _words(content.text)
    return _words(content.image.decode("utf-8", "ignore"))


def item_words(item: index_service_pb2.Item) -> frozenset[str]:
    """Returns the words of an item's content; for an image also of its id and attributes."""
    words = content_words(item.content)
    if item.content.WhichOneof("data") == "text":
        return words
    told = [_attribute_text(value) for value in item.attributes.values()]
    return words.union(_words(item.item_id), *map(_words, told))


def similarity(query: AbstractSet[str], item: AbstractSet[str]) -> float:
    """Returns the share of common words: the cosine of both as vectors of 0 and 1."""
    if not query or not item:
        return 0.0
    return len(query & item) / math.sqrt(len(query) * len(item))


def match_logit(query: AbstractSet[str], item: AbstractSet[str]) -> float:
    """Returns a logit from -4, for no common word, to 4 for the same words."""
    every = query | item
    return 8.0 * len(query & item) / len(every) - 4.0 if every else -4.0


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", text.lower()))


def _attribute_text(value: attribute_pb2.AttributeValue) -> str:
    return " ".join([value.text, *value.texts.values])
