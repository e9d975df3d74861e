"""Defines an item as a shard stores it, how items are read, and what deleting reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandem.contract.content import Content, Encoding, content_bytes
from tandem.contract.filtering.attributes import Attributes
from tandem.contract.identifiers import check_index_id, check_item_id
from tandem.contract.limits import MAX_ITEM_ID_COUNT, check_batch_size
from tandem.contract.modality import Modality
from tandem.errors import RequestMalformed

MAX_READ_BYTES = 16 * 2**20
"""The most bytes of records that a shard reads at once, unless a single one has more."""

# Of an item in a message with its id, and of an attribute around its name and value.
_ITEM_BYTES = 64
_ATTRIBUTE_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class ItemRecord:
    """Describes one item with everything that searching and reranking need.

    Content and tokens are of the same modality.
    """

    item_id: str
    content: Content
    encoding: Encoding
    attributes: Attributes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemsQuery:
    """Names the items to read, and what of them.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestMalformed.
    """

    index_id: str
    item_ids: Sequence[str]
    content_included: bool = True
    encodings_included: bool = False
    max_bytes: int = 0
    """Of the records read at once, of which one is always read; 0 is the shard's limit."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_batch_size("item_ids", len(self.item_ids), MAX_ITEM_ID_COUNT)
        for item_id in self.item_ids:
            check_item_id(item_id)
        if self.max_bytes < 0:
            raise RequestMalformed(why=f"max_bytes is {self.max_bytes}")

    def fetched(self, item: ItemRecord) -> "FetchedItem":
        """Returns what the query asks of an item."""
        return FetchedItem(
            item.content if self.content_included else None,
            item.attributes,
            item.encoding if self.encodings_included else None,
        )

    def first_within(self, sizes: Mapping[str, int]) -> Sequence[str]:
        """Returns the ids to read at once, at least one, by the bytes of the records there are."""
        left_bytes = min(self.max_bytes or MAX_READ_BYTES, MAX_READ_BYTES)
        for count, item_id in enumerate(self.item_ids):
            left_bytes -= sizes.get(item_id, 0)
            if count and left_bytes < 0:
                return self.item_ids[:count]
        return self.item_ids


@dataclass(frozen=True, slots=True, eq=False)
class ItemEmbedding:
    """Holds what an item is searched by."""

    embedding: NDArray[np.float32]
    modality: Modality
    fingerprint: str


@dataclass(frozen=True, slots=True)
class FetchedItem:
    """Holds what a shard returns of an item."""

    content: Content | None
    """None if the read left it out."""
    attributes: Attributes
    encoding: Encoding | None = field(default=None, compare=False)
    """None unless the read asked for it."""
    embedding: ItemEmbedding | None = None
    """Of the encoding, where a caller gets it without the tokens."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes its content and attributes have in a message."""
        content = 0 if self.content is None else len(content_bytes(self.content))
        return (
            _ITEM_BYTES
            + content
            + sum(
                _ATTRIBUTE_BYTES + len(name) + len(str(value).encode())
                for name, value in self.attributes.items()
            )
        )


@dataclass(frozen=True, slots=True)
class FetchedItems:
    """Holds the items that exist of the first ids of a query, by id."""

    items: Mapping[str, FetchedItem]
    read_count: int
    """How many of the ids were looked up, at least one."""
    fingerprint: str = ""
    """Of the model that made the encodings; empty if they were not asked for."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """Counts the deleted items, and names the sequence of the shard's change log."""

    count: int
    sequence: int
    is_complete: bool = True
    """For an index: whether none of it is left on the shard."""
