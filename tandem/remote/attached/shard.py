"""Reads items of another program's rows, with their pictures, and refuses to write them."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import MAX_IMAGE_BYTES, Encoding, ImageContent, ImageTokens
from tandem.contract.deadline import Deadline
from tandem.contract.filtering.attributes import Attributes, value_fault
from tandem.errors import IndexReadOnly, ItemCorrupt
from tandem.remote.attached.attachment import Attachments
from tandem.remote.engine_shard import EngineShard
from tandem.remote.milvus.item_objects import ItemObjects
from tandem.stages.candidate_store import CandidateStore, StoredContent, StoredTokens
from tandem.stages.changes import ChangePage
from tandem.stages.item_write import Committed, Fence, ShardWrite
from tandem.stages.items import Deleted, FetchedItem, FetchedItems, ItemsQuery
from tandem.stages.notes import Note
from tandem.stages.reranking import ScoreQuery

# Of one read of pictures, of which each has at most MAX_IMAGE_BYTES.
_PICTURE_COUNT = 8
# Of a rerank's read, whose own deadline is shorter.
_READ_SECONDS = 30.0
_NO_TOKENS = ImageTokens(np.empty((0, 0), np.float16))


class AttachedRow(NamedTuple):
    """Holds a row as the engine has it; nothing of it was checked."""

    vector: NDArray[np.float32]
    """Empty for none."""
    picture: object
    values: Mapping[str, object]


class AttachedShard(EngineShard):
    """A shard over another program's rows, whose searches are those of its engine."""

    attachments: Attachments
    objects: ItemObjects

    @abstractmethod
    async def rows(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> Mapping[str, AttachedRow]:
        """Returns the rows that there are."""

    async def get(self, query: ItemsQuery, deadline: Deadline) -> FetchedItems:
        """Returns the first items; one whose picture is missing or too large has no content.

        Raises ItemCorrupt for the encoding of a vector that the model cannot have made.
        """
        info = self.attachments.info(query.index_id)
        item_ids = query.item_ids[: _PICTURE_COUNT if query.content_included else None]
        rows = await self.rows(query.index_id, item_ids, deadline)
        keys: dict[str, str] = {}
        if query.content_included:
            found = {item_id: object_key(row.picture) for item_id, row in rows.items()}
            keys = {item_id: key for item_id, key in found.items() if key is not None}
        objects = await self.objects.get(keys.values(), MAX_IMAGE_BYTES)
        contents = {i: each for i, each in zip(keys, objects, strict=True) if each is not None}
        sizes = {item_id: len(each) for item_id, each in contents.items()}
        read = query.first_within(sizes)[: len(item_ids)]
        items = {
            item_id: FetchedItem(
                ImageContent(contents[item_id]) if item_id in contents else None,
                attributes_of(rows[item_id].values),
                Encoding(unit(item_id, rows[item_id].vector, info.dimension), _NO_TOKENS)
                if query.encodings_included
                else None,
            )
            for item_id in read
            if item_id in rows
        }
        fingerprint = info.fingerprint if query.encodings_included else ""
        return FetchedItems(items, len(read), fingerprint)

    async def notes(self, prefix: str, deadline: Deadline) -> Sequence[Note]:
        """Returns none: another program owns the data."""
        return ()

    async def write(self, write: ShardWrite, deadline: Deadline) -> Committed:
        """Raises IndexReadOnly, as every write does."""
        raise IndexReadOnly

    async def delete_index(self, index_id: str, deadline: Deadline) -> Deleted:
        raise IndexReadOnly

    async def changes(self, after_sequence: int, max_count: int, deadline: Deadline) -> ChangePage:
        raise IndexReadOnly

    async def fence(self, fence: Fence, deadline: Deadline) -> Committed:
        raise IndexReadOnly


class AttachedCandidates(CandidateStore):
    """Reads candidates of attached indexes of one model; their image tokens are not stored.

    An item's version is a digest of its vector: another program's rows have none.
    """

    def __init__(self, shard: AttachedShard, fingerprint: str) -> None:
        """Refuses indexes of other models than the one of the fingerprint."""
        self._shard = shard
        self._fingerprint = fingerprint

    async def open(self) -> None:
        """Raises ServiceUnavailable while the engine does not answer."""
        await self._shard.check()

    async def close(self) -> None:
        """Closes the connections."""
        await self._shard.close()

    async def versions(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, int]:
        """Returns the versions of the items that exist."""
        for each in (asked.fingerprint, self._fingerprint):
            self._shard.attachments.info(asked.index_id).check(each, ())
        rows = await self._shard.rows(asked.index_id, item_ids, Deadline.after(_READ_SECONDS))
        return {
            item_id: int.from_bytes(hashlib.blake2b(row.vector.tobytes(), digest_size=7).digest())
            for item_id, row in rows.items()
        }

    async def tokens(self, asked: ScoreQuery, item_ids: Sequence[str]) -> dict[str, StoredTokens]:
        """Returns empty tokens and versions of the items that exist."""
        versions = await self.versions(asked, item_ids)
        return {item_id: StoredTokens(_NO_TOKENS, each) for item_id, each in versions.items()}

    async def contents(
        self, asked: ScoreQuery, item_ids: Sequence[str]
    ) -> dict[str, StoredContent]:
        """Returns pictures and versions of the items that have one."""
        versions = await self.versions(asked, item_ids)
        found: dict[str, StoredContent] = {}
        left = [*versions]
        while left:
            query = ItemsQuery(asked.index_id, left)
            part = await self._shard.get(query, Deadline.after(_READ_SECONDS))
            found |= {
                item_id: StoredContent(item.content, versions[item_id])
                for item_id, item in part.items.items()
                if item.content is not None
            }
            del left[: part.read_count]
        return found


def object_key(picture: object) -> str | None:
    """Returns the key of an object below the store; None for what leaves it, or is no key."""
    if not isinstance(picture, str) or not picture.isprintable():
        return None
    parts = picture.split("/")
    is_key = all(part not in ("", ".", "..") and len(part.encode()) < 256 for part in parts)
    return picture if is_key and len(picture.encode()) <= 1_024 else None


def unit(item_id: str, vector_D: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Returns the vector with unit length; raises ItemCorrupt for one that can have none."""
    length = np.linalg.norm(vector_D.astype(np.float64))
    if len(vector_D) != dimension or not 0 < length < np.inf:
        raise ItemCorrupt(item_id=item_id, why=f"its vector has no {dimension} dimensions or NaN")
    return (vector_D / length).astype(np.float32)


def attributes_of(values: Mapping[str, object]) -> Attributes:
    """Returns those that an item can have, without NULL and longer or other values."""
    found = {}
    for name, value in values.items():
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = tuple(value)
        if isinstance(value, str | int | float | tuple) and value_fault(name, value) is None:
            found[name] = value
    return found
