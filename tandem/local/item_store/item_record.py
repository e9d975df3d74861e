"""Packs and reads the record of one item in the item store.

    value = CRC32 | header | attributes, JSON | embedding | tokens | content

The header says how to read the rest: modality, token shape, and the change-log sequence number of
the write. A reader takes only the part it needs, so that a rerank does not copy pictures.

Records of version 3 name a content that is stored apart (item_contents.py) by its digest. Those of
version 2 hold it: a small one, or one that an earlier release stored.
"""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tandem.contract.content import (
    Content,
    Encoding,
    ImageContent,
    ImageTokens,
    Modality,
    TextContent,
    TextTokens,
    Tokens,
    content_bytes,
)
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.regions import RegionContent
from tandem.errors import ItemCorrupt
from tandem.local.item_store.checksum import (
    CHECKSUM_BYTES,
    ChecksumMismatch,
    seal,
    stored_checksum,
    unseal,
)
from tandem.stages.items import ItemRecord

_MAGIC = b"TDMI"
_RECORD_VERSION = 3
_HOLDING_VERSION = 2
_NO_RECORD = f"no record of version {_RECORD_VERSION}"
DIGEST_BYTES = 16
_PREFIX = struct.Struct("<4sH")
# Magic, version, kind of the content, dimensions of the tokens, sequence, the two dimensions (the
# second is 0 for token ids), then the lengths of attributes, embedding, tokens and content, in
# bytes.
_HEADER = struct.Struct("<4sHBBQ2I4I")
# The number of the modality, until regions came; it fixes the type of the content.
_KINDS: tuple[type[Content], ...] = (TextContent, ImageContent, RegionContent)
# json.loads guesses the encoding of bytes and skips blanks first, which takes longer than parsing.
_parse_json = json.JSONDecoder().raw_decode

ReadContent = Callable[[bytes], memoryview]
"""Returns the content of a digest; raises ItemCorrupt where it is missing or damaged."""


def item_key(index_id: str, item_id: str) -> bytes:
    """Returns the item's key; neither id has a NUL, so keys of different items differ."""
    return f"{index_id}\0{item_id}".encode()


def pack_item(key: bytes, item: ItemRecord, sequence: int, digest: bytes = b"") -> bytes:
    """Returns the value to store under the key; with a digest, it names the content by that."""
    version = _RECORD_VERSION if digest else _HOLDING_VERSION
    return _packed(key, item, sequence, digest or content_bytes(item.content), version)


def pack_apart(key: bytes, item: ItemRecord, sequence: int) -> tuple[bytes, bytes]:
    """Returns a record without content, and the content, for an engine that reads them apart.

    Each has its checksum. `sequence` may be any number that no other write of the item has.
    """
    return _packed(key, item, sequence, b""), seal(key, content_bytes(item.content))


def _packed(
    key: bytes, item: ItemRecord, sequence: int, content: bytes, version: int = _HOLDING_VERSION
) -> bytes:
    match item.encoding.tokens:
        case TextTokens(ids):
            tokens = np.ascontiguousarray(ids, dtype="<i4")
        case ImageTokens(values):
            tokens = np.ascontiguousarray(values, dtype="<f2")
    rows, width = (*tokens.shape, 0)[:2]
    parts = (
        attributes_json(item.attributes) if item.attributes else b"",
        np.ascontiguousarray(item.encoding.embedding, dtype="<f4").tobytes(),
        tokens.tobytes(),
        content,
    )
    header = _HEADER.pack(
        _MAGIC,
        version,
        _KINDS.index(type(item.content)),
        tokens.ndim,
        sequence,
        rows,
        width,
        *map(len, parts),
    )
    return seal(key, b"".join((header, *parts)))


def named_digest(value: bytes | memoryview) -> bytes:
    """Returns the digest that a record names; empty if it holds its content. Verifies nothing."""
    start = bytes(value[CHECKSUM_BYTES : CHECKSUM_BYTES + _PREFIX.size])
    return bytes(value[-DIGEST_BYTES:]) if start == _PREFIX.pack(_MAGIC, _RECORD_VERSION) else b""


def attributes_json(attributes: Attributes) -> bytes:
    """Returns JSON, sorted by name, that keeps values and their types."""
    return json.dumps(dict(attributes), separators=(",", ":"), sort_keys=True).encode()


def item_version(item_id: str, value: bytes | memoryview) -> int:
    """Returns a number that no other write of the item has.

    It is the write's sequence and, in the lower bits, the record's checksum: a sequence alone may
    be reused after a fault of the disk undid a write. Both stand in the value's first bytes, and
    nothing more is read or verified: damage there makes another version. Raises ItemCorrupt where
    there is no such header.
    """
    try:
        start = _HEADER.unpack_from(value, CHECKSUM_BYTES)
        if start[0] == _MAGIC and start[1] in (_HOLDING_VERSION, _RECORD_VERSION):
            return _version(start[4], value)
    except (ChecksumMismatch, struct.error) as error:
        raise ItemCorrupt(item_id=item_id, why=str(error)) from error
    raise ItemCorrupt(item_id=item_id, why=_NO_RECORD)


class RecordView:
    """Reads a stored item part by part, once its checksum is verified.

    It is a view into the read transaction and ends with it; its methods return copies.
    """

    modality: Modality
    sequence: int
    """Where the change log stood when the item was written."""
    version: int
    """Equals `item_version()`."""

    def __init__(
        self,
        item_id: str,
        key: bytes,
        value: bytes | memoryview,
        read_content: ReadContent | None = None,
    ) -> None:
        """Verifies the value; raises ItemCorrupt if it is not what was written under the key.

        A content that is apart is read by `read_content`, where it is needed.
        """
        self.item_id, self._key, self._value = item_id, key, value
        try:
            payload = unseal(key, value)
            magic, version = _PREFIX.unpack_from(payload)
            if magic != _MAGIC or version not in (_HOLDING_VERSION, _RECORD_VERSION):
                raise ItemCorrupt(item_id=item_id, why=_NO_RECORD)
            lengths = self._read_header(payload)
        except (ChecksumMismatch, struct.error) as error:
            raise ItemCorrupt(item_id=item_id, why=str(error)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ItemCorrupt(item_id=item_id, why=f"its header is damaged: {error!r}") from error
        self.version = _version(self.sequence, value)
        start, end = self._start, self._start + sum(lengths)
        if end != len(payload):
            raise ItemCorrupt(item_id=item_id, why=f"it has {len(payload)} bytes, not {end}")
        attributes, embedding, tokens, _ = lengths
        self._attributes = payload[start : (start := start + attributes)]
        self._embedding = payload[start : (start := start + embedding)]
        self._tokens = payload[start : (start := start + tokens)]
        self._content = payload[start:]
        self._read_content = read_content if version == _RECORD_VERSION else None

    def _read_header(self, payload: memoryview) -> Sequence[int]:
        _, _, kind, rank, self.sequence, rows, width, *lengths = _HEADER.unpack_from(payload)
        self._kind = _KINDS[kind]
        self.modality = Modality.TEXT if self._kind is TextContent else Modality.IMAGE
        self._tokens_shape = (rows, width)[:rank]
        self._start = _HEADER.size
        return lengths

    def embedding(self) -> npt.NDArray[np.float32]:
        return np.frombuffer(self._embedding, dtype="<f4").astype(np.float32)

    def attributes(self) -> Attributes:
        """Returns the attributes with their original types."""
        if not self._attributes:
            return {}
        attributes: dict[str, Any] = _parse_json(str(self._attributes, "utf-8"))[0]
        for name, value in attributes.items():
            if type(value) is list:  # of texts; JSON distinguishes the other types
                attributes[name] = tuple(value)
        return attributes

    def tokens(self) -> Tokens:
        """Returns the cross-encoder's input."""
        shape = self._tokens_shape
        if self.modality is Modality.TEXT:
            return TextTokens(
                np.frombuffer(self._tokens, dtype="<i4").astype(np.int32).reshape(shape)
            )
        return ImageTokens(
            np.frombuffer(self._tokens, dtype="<f2").astype(np.float16).reshape(shape)
        )

    def encoding(self) -> Encoding:
        return Encoding(self.embedding(), self.tokens())

    def text(self) -> str:
        """Returns the content of a text; empty for a picture, whose content is not copied."""
        return str(self.stored_content(), "utf-8") if self._kind is TextContent else ""

    def stored_content(self) -> memoryview:
        """Returns a view of the content, verified; raises ItemCorrupt."""
        if self._read_content is not None:
            self._content = self._read_content(bytes(self._content))
            self._read_content = None
        return self._content

    def content(self, apart: bytes | None = None) -> Content:
        """Returns the content as it was ingested; `apart` is its value from `pack_apart`."""
        try:
            content = bytes(self.stored_content() if apart is None else unseal(self._key, apart))
        except ChecksumMismatch as error:
            raise ItemCorrupt(item_id=self.item_id, why=f"its content: {error}") from error
        if self._kind is RegionContent:
            return RegionContent.unpacked(content)
        if self._kind is TextContent:
            return TextContent(content.decode())
        return ImageContent(content)

    def with_attributes(self, attributes: Attributes, sequence: int) -> bytes:
        """Returns the value of the record with other attributes, and all else as it is."""
        head = bytes(self._value[CHECKSUM_BYTES : CHECKSUM_BYTES + _HEADER.size])
        magic, version, kind, rank, _, rows, width, _, *lengths = _HEADER.unpack(head)
        packed = attributes_json(attributes) if attributes else b""
        header = _HEADER.pack(
            magic, version, kind, rank, sequence, rows, width, len(packed), *lengths
        )
        rest = self._value[-sum(lengths) :]
        return seal(self._key, b"".join((header, packed, rest)))

    def item(self, content: bytes | None = None) -> ItemRecord:
        """Returns the whole item; `content` as in `content()`."""
        return ItemRecord(
            self.item_id,
            self.content(content),
            self.encoding(),
            self.attributes(),
        )


def _version(sequence: int, value: bytes | memoryview) -> int:
    return sequence << 32 | stored_checksum(value)
