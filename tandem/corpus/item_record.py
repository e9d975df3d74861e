"""How one item lies in the item store.

    value = CRC32 | magic, version, lengths | JSON | embedding | tokens | content

The JSON says how to read what follows it: modality, token shape, and the change-log sequence number
of the write. A reader takes only the part it needs, so a rerank does not copy pictures.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tandem.attributes import Attributes
from tandem.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
    Tokens,
)
from tandem.corpus.checksum import ChecksumMismatch, seal, unseal
from tandem.errors import ItemCorrupt

_MAGIC = b"TDMI"
_RECORD_VERSION = 1
# magic, version, two bytes kept free, then the lengths of JSON, embedding, tokens and content
_HEADER = struct.Struct("<4sHHIIII")


@dataclass(frozen=True, slots=True, eq=False)
class StoredItem:
    """One item with all that searching and reranking need of it.

    Content and tokens are of the same modality.
    """

    item_id: str
    content: Content
    encoding: Encoding
    attributes: Attributes = field(default_factory=dict)


def item_key(index_id: str, item_id: str) -> bytes:
    """Returns the item's key; neither id has a NUL, so keys of different items differ."""
    return f"{index_id}\0{item_id}".encode()


def pack_item(key: bytes, item: StoredItem, sequence: int) -> bytes:
    """Returns the value to store under the key."""
    content = (
        item.content.text.encode()
        if isinstance(item.content, TextContent)
        else item.content.image_bytes
    )
    match item.encoding.tokens:
        case TextTokens(ids):
            tokens = np.ascontiguousarray(ids, dtype="<i4")
        case ImageTokens(values):
            tokens = np.ascontiguousarray(values, dtype="<f2")
    shape = {
        "modality": item.content.modality.value,
        "tokens_shape": tokens.shape,
        "sequence": sequence,
    }
    parts = (
        json.dumps(shape, separators=(",", ":")).encode(),
        np.ascontiguousarray(item.encoding.embedding, dtype="<f4").tobytes(),
        tokens.tobytes(),
        content,
    )
    header = _HEADER.pack(_MAGIC, _RECORD_VERSION, 0, *map(len, parts))
    return seal(key, b"".join((header, *parts)))


class RecordView:
    """A stored item whose checksum holds, read part by part.

    A view into the read transaction: dead when that ends. What the methods return are copies.
    """

    def __init__(self, item_id: str, key: bytes, value: bytes | memoryview) -> None:
        """Raises ItemCorrupt if the value is not what was written under the key."""
        self.item_id = item_id
        try:
            payload = unseal(key, value)
            magic, version, _, *lengths = _HEADER.unpack_from(payload)
        except (ChecksumMismatch, struct.error) as error:
            raise ItemCorrupt(item_id=item_id, why=str(error)) from error
        if (magic, version) != (_MAGIC, _RECORD_VERSION) or _HEADER.size + sum(lengths) != len(
            payload
        ):
            raise ItemCorrupt(item_id=item_id, why=f"not a record of version {_RECORD_VERSION}")
        parts: list[memoryview] = []
        start = _HEADER.size
        for length in lengths:
            parts.append(payload[start : start + length])
            start += length
        shape, self._embedding, self._tokens, self._content = parts
        self._shape: dict[str, Any] = json.loads(bytes(shape))
        self.modality = Modality(self._shape["modality"])

    @property
    def sequence(self) -> int:
        """Where the change log stood when the item was written."""
        return int(self._shape["sequence"])

    def embedding(self) -> npt.NDArray[np.float32]:
        """Returns the embedding, [d]."""
        return np.frombuffer(self._embedding, dtype="<f4").astype(np.float32)

    def tokens(self) -> Tokens:
        """Returns what the cross-encoder reads."""
        shape = self._shape["tokens_shape"]
        if self.modality is Modality.TEXT:
            return TextTokens(
                np.frombuffer(self._tokens, dtype="<i4").astype(np.int32).reshape(shape)
            )
        return ImageTokens(
            np.frombuffer(self._tokens, dtype="<f2").astype(np.float16).reshape(shape)
        )

    def content(self) -> Content:
        """Returns the content as the user gave it."""
        content = bytes(self._content)
        return (
            TextContent(content.decode())
            if self.modality is Modality.TEXT
            else ImageContent(content)
        )

    def item(self) -> StoredItem:
        """Returns all of it."""
        return StoredItem(self.item_id, self.content(), Encoding(self.embedding(), self.tokens()))
