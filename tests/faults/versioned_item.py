"""Items whose every part tells one number, their version: so a stored item can be judged whole."""

import numpy as np

from tandem.content import (
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
)
from tandem.corpus.item_record import StoredItem
from tests.corpus.made_items import DIMENSION, unit_vector

_PICTURE_START = b"\x89PNG"


def modality_of(version: int) -> Modality:
    """Returns what an item of the version is: every fourth is an image."""
    return Modality.IMAGE if version % 4 == 3 else Modality.TEXT


def versioned_item(item_id: str, version: int, dimension: int = DIMENSION) -> StoredItem:
    """Returns the item; its content, tokens and embedding are those of no other version."""
    embedding = unit_vector(version, dimension)
    if modality_of(version) is Modality.TEXT:
        tokens = TextTokens(np.array([101, version, 102], dtype=np.int32))
        text = TextContent(f"{item_id} of version {version}")
        return StoredItem(item_id, text, Encoding(embedding, tokens))
    values = np.random.default_rng(version).standard_normal((49, 4)).astype(np.float16)
    picture = ImageContent(_PICTURE_START + f" {item_id} of version {version}".encode())
    return StoredItem(item_id, picture, Encoding(embedding, ImageTokens(values)))


def content_version(content: TextContent | ImageContent) -> int | None:
    """Returns the version that the content tells; None where it is not of a versioned item."""
    if isinstance(content, TextContent):
        words = content.text
    else:
        words = content.image_bytes.removeprefix(_PICTURE_START).decode(errors="replace")
    last = words.rpartition(" ")[2]
    return int(last) if last.isdecimal() else None


def is_whole(item: StoredItem) -> bool:
    """Says whether all parts of the item are those of its version, to the bit."""
    version = content_version(item.content)
    if version is None:
        return False
    expected = versioned_item(item.item_id, version, len(item.encoding.embedding))
    match item.encoding.tokens, expected.encoding.tokens:
        case TextTokens(found), TextTokens(wanted):
            has_tokens = np.array_equal(found, wanted)
        case ImageTokens(found), ImageTokens(wanted):
            has_tokens = np.array_equal(found, wanted)
        case _:
            has_tokens = False
    return (
        has_tokens
        and item.content == expected.content
        and np.array_equal(item.encoding.embedding, expected.encoding.embedding)
    )
