"""Makes items whose every part encodes one number, their version, so that an item can be judged."""

import numpy as np

from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
    content_bytes,
)
from tandem.stages.items import ItemRecord
from tests.support.item_store.made_items import DIMENSION, unit_vector

_PICTURE_START = b"\x89PNG"


def modality_of(version: int) -> Modality:
    """Returns the modality of an item of the version: every fourth is an image."""
    return Modality.IMAGE if version % 4 == 3 else Modality.TEXT


def versioned_item(
    item_id: str, version: int, dimension: int = DIMENSION, padding_bytes: int = 0
) -> ItemRecord:
    """Returns the item, whose content, tokens and embedding are unique to the version."""
    words = f"{item_id} {'.' * padding_bytes} of version {version}"
    embedding = unit_vector(version, dimension)
    if modality_of(version) is Modality.TEXT:
        tokens = TextTokens(np.array([101, version, 102], dtype=np.int32))
        text = TextContent(words)
        return ItemRecord(item_id, text, Encoding(embedding, tokens))
    values = np.random.default_rng(version).standard_normal((49, 4)).astype(np.float16)
    picture = ImageContent(_PICTURE_START + f" {words}".encode())
    return ItemRecord(item_id, picture, Encoding(embedding, ImageTokens(values)))


def content_version(item_id: str, content: Content) -> int:
    """Returns the version that the content encodes; 0, which none has, where any of it is wrong."""
    words = _words(content)
    last = words.rpartition(" ")[2]
    version = int(last) if last.isdecimal() else 0
    padding_bytes = words.count(".")
    expected = versioned_item(item_id, version, padding_bytes=padding_bytes).content
    return version if content == expected else 0


def is_whole(item: ItemRecord) -> bool:
    """Returns whether all parts of the item are those of its version, to the bit."""
    version = content_version(item.item_id, item.content)
    expected = versioned_item(item.item_id, version, len(item.encoding.embedding))
    match item.encoding.tokens, expected.encoding.tokens:
        case TextTokens(found), TextTokens(wanted):
            has_tokens = np.array_equal(found, wanted)
        case ImageTokens(found), ImageTokens(wanted):
            has_tokens = np.array_equal(found, wanted)
        case _:
            has_tokens = False
    has_embedding = np.array_equal(item.encoding.embedding, expected.encoding.embedding)
    return version != 0 and has_tokens and has_embedding


def _words(content: Content) -> str:
    if isinstance(content, TextContent):
        return content.text
    return content_bytes(content).removeprefix(_PICTURE_START).decode(errors="replace")
