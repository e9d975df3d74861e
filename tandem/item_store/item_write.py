"""What an item store is asked to write, and what comes of it."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandem.contract.content import TextContent
from tandem.item_store.item_record import StoredItem, attributes_json

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Stores items, new or replacing those of the same id.

    Their ids differ, their embeddings have one dimension, and there is at least one. A write whose
    `request_id`, if it has one, was stored before is answered as then and not stored again.
    """

    index_id: str
    fingerprint: str
    items: Sequence[StoredItem]
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """How many records it changes at most."""
        return len(self.items)

    def digest(self) -> bytes:
        """Returns a hash of what its caller asked for: equal for two attempts at one write.

        Embeddings and tokens are left out. They follow from content and model, but a second
        encoding of the same content may round otherwise in another batch.
        """
        return _digest(self._parts())

    def _parts(self) -> Iterable[bytes]:
        yield b"upsert"
        yield self.index_id.encode()
        yield self.fingerprint.encode()
        for item in self.items:
            yield item.item_id.encode()
            yield item.content.modality.value.encode()
            if isinstance(item.content, TextContent):
                yield item.content.text.encode()
            else:
                yield item.content.image_bytes
            yield attributes_json(item.attributes)


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Deletes items by id; ids that are not there are no error. `request_id` as in Upsert."""

    index_id: str
    item_ids: Sequence[str]
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """How many records it changes at most."""
        return len(self.item_ids)

    def digest(self) -> bytes:
        """Returns a hash of all of it but the request id."""
        return _digest((b"delete", self.index_id.encode(), *(i.encode() for i in self.item_ids)))


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Forgets an index that has no items left; of one that has, nothing is changed."""

    index_id: str
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """None of them: its items were deleted before."""
        return 0

    def digest(self) -> bytes:
        """Returns a hash of all of it but the request id."""
        return _digest((b"drop", self.index_id.encode()))


ItemWrite = Upsert | Delete | Drop


@dataclass(frozen=True, slots=True)
class Committed:
    """The write is on disk, and the change log stood at `sequence` after it.

    With `is_repeat` that was so before: nothing was stored now, and nothing is to be followed.
    """

    sequence: int
    deleted_count: int = 0
    is_repeat: bool = False
    is_dropped: bool = False
    """Of a drop: whether the index had no items and is forgotten."""


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(_LENGTH.pack(len(part)))
        digest.update(part)
    return digest.digest()
