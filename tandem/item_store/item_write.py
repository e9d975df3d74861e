"""Defines the writes that an item store takes, and their outcome."""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandem.contract.content import content_bytes
from tandem.item_store.item_record import attributes_json
from tandem.stages.items import ItemRecord

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Stores items, replacing those of the same ids.

    There is at least one; their ids differ, and their embeddings have one dimension. A write whose
    `request_id` was stored before gets the same answer and is not stored again.
    """

    index_id: str
    fingerprint: str
    items: Sequence[ItemRecord]
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """Returns how many records it changes at most."""
        return len(self.items)

    def digest(self) -> bytes:
        """Returns a hash of the request, equal for two attempts at one write.

        Embeddings and tokens are left out. They follow from content and model, but encoding the
        same content again may round differently in another batch.
        """
        return _digest(self._parts())

    def _parts(self) -> Iterable[bytes]:
        yield b"upsert"
        yield self.index_id.encode()
        yield self.fingerprint.encode()
        for item in self.items:
            yield item.item_id.encode()
            yield item.content.modality.value.encode()
            yield content_bytes(item.content)
            yield attributes_json(item.attributes)


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Deletes items by id, ignoring missing ones; `request_id` as in Upsert."""

    index_id: str
    item_ids: Sequence[str]
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """Returns how many records it changes at most."""
        return len(self.item_ids)

    def digest(self) -> bytes:
        """Returns a hash of everything except the request id."""
        return _digest((b"delete", self.index_id.encode(), *(i.encode() for i in self.item_ids)))


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Forgets an index if it has no items left."""

    index_id: str
    request_id: str = ""

    @property
    def record_count(self) -> int:
        """Returns 0: its items were deleted before."""
        return 0

    def digest(self) -> bytes:
        """Returns a hash of everything except the request id."""
        return _digest((b"drop", self.index_id.encode()))


ItemWrite = Upsert | Delete | Drop


@dataclass(frozen=True, slots=True)
class Committed:
    """Reports a write that is on disk, and the `sequence` of the change log after it.

    With `is_repeat` it was on disk before: nothing was stored now, and indexes need no change.
    """

    sequence: int
    deleted_count: int = 0
    is_repeat: bool = False
    is_dropped: bool = False
    """Whether a drop found the index empty and forgot it."""


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(_LENGTH.pack(len(part)))
        digest.update(part)
    return digest.digest()
