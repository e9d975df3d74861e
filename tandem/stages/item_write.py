"""Defines the writes that a shard takes, and their outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tandem.contract.filtering.attributes import check_attributes
from tandem.contract.identifiers import (
    check_fingerprint,
    check_index_id,
    check_item_id,
    check_request_id,
)
from tandem.contract.limits import (
    MAX_ITEM_ID_COUNT,
    MAX_PATCH_COUNT,
    MAX_UPSERT_ITEM_COUNT,
    check_batch_size,
)
from tandem.contract.search.item_changes import ItemPatch
from tandem.errors import (
    EmbeddingInvalid,
    ItemIdDuplicate,
    RequestMalformed,
    ServiceUnavailable,
    TandemError,
    TokensInvalid,
)
from tandem.stages.items import ItemRecord
from tandem.stages.notes import PutNote, SetWriter
from tandem.stages.unit_length import check_unit_lengths

_FENCE_KEY = "fence"


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Stores items, replacing those of the same ids.

    There is at least one; their ids differ, and their embeddings have one dimension. A write whose
    `request_id` was stored before gets the same answer and is not stored again.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, ItemIdDuplicate, EmbeddingInvalid,
    TokensInvalid, AttributeInvalid, RequestIdInvalid, RequestMalformed.
    """

    index_id: str
    fingerprint: str
    items: Sequence[ItemRecord]
    request_id: str = ""
    term: int = 0
    """Of a follower that writes a closed index (notes.py); 0 for callers."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_fingerprint(self.fingerprint)
        check_request_id(self.request_id)
        check_batch_size("items", len(self.items), MAX_UPSERT_ITEM_COUNT)
        seen: set[str] = set()
        for item in self.items:
            _check_item(item)
            if item.item_id in seen:
                raise ItemIdDuplicate(item_id=item.item_id)
            seen.add(item.item_id)
        _check_embeddings(self.items)

    @property
    def record_count(self) -> int:
        """Returns how many records it changes at most."""
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Deletes items by id, ignoring missing ones; `request_id` as in Upsert.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestIdInvalid.
    """

    index_id: str
    item_ids: Sequence[str]
    request_id: str = ""
    term: int = 0
    """As in Upsert."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_request_id(self.request_id)
        check_batch_size("item_ids", len(self.item_ids), MAX_ITEM_ID_COUNT)
        for item_id in self.item_ids:
            check_item_id(item_id)

    @property
    def record_count(self) -> int:
        """Returns how many records it changes at most."""
        return len(self.item_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Changes attributes of items, and leaves their contents and encodings; as Upsert otherwise.

    An item that is missing, or would have too many attributes, keeps no other from it.

    Raises IndexIdInvalid, BatchSizeOutOfRange, ItemIdInvalid, RequestIdInvalid, RequestMalformed.
    """

    index_id: str
    patches: Sequence[ItemPatch]
    request_id: str = ""
    term: int = 0
    """As in Upsert."""

    def __post_init__(self) -> None:
        check_index_id(self.index_id)
        check_request_id(self.request_id)
        check_batch_size("patches", len(self.patches), MAX_PATCH_COUNT)
        for each in self.patches:
            check_item_id(each.item_id)
            if each.copied_from_item_id:
                raise RequestMalformed(why="a shard copies no items")

    @property
    def record_count(self) -> int:
        """Returns how many records it changes at most."""
        return len(self.patches)

    @property
    def by_item(self) -> Mapping[str, Sequence[ItemPatch]]:
        """Returns the patches of each item, in their order."""
        found: dict[str, list[ItemPatch]] = {}
        for each in self.patches:
            found.setdefault(each.item_id, []).append(each)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Drop:
    """Forgets an index if it has no items left."""

    index_id: str
    request_id: str = ""
    record_count: ClassVar[int] = 0
    """Its items were deleted before."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Refuses the writes after it for some seconds, or for good; with neither, no longer."""

    seconds: float = 0.0
    sealed_sequence: int | None = None
    """Seals the store if its change log stands here: writes are refused after a restart too."""
    index_id: str = ""
    request_id: str = ""
    record_count: ClassVar[int] = 0
    """It changes no item."""


ItemsWrite = Upsert | Patch | Delete
"""What callers may write."""

ShardWrite = ItemsWrite | PutNote | SetWriter
"""What a shard is asked to write."""

ItemWrite = ShardWrite | Drop | Fence


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
    is_sealed: bool = False
    """Whether a fence is one for good."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Of a patch: why items are as before, by id; empty where there is no such item."""


def refused_by_fence() -> ServiceUnavailable:
    """Returns the error of a write to a shard whose items are moved to others."""
    error = ServiceUnavailable(service="index", why="its items are being moved to other shards")
    error.metadata[_FENCE_KEY] = "true"
    return error


def is_refused_by_fence(error: TandemError) -> bool:
    """Returns whether the write is not stored, and may be once the items are moved."""
    return _FENCE_KEY in error.metadata


def _check_item(item: ItemRecord) -> None:
    check_item_id(item.item_id)
    check_attributes(item.attributes)
    modality, tokens = item.content.modality, item.encoding.tokens
    if tokens.modality is not modality:
        raise TokensInvalid(
            why=f"they are of {tokens.modality.value}, but the content is {modality.value}"
        )


def _check_embeddings(items: Sequence[ItemRecord]) -> None:
    embeddings = [item.encoding.embedding for item in items]
    for embedding in embeddings:
        if len(embedding) != len(embeddings[0]):
            raise EmbeddingInvalid(
                why=f"it has {len(embedding)} dimensions, the batch's first {len(embeddings[0])}"
            )
    check_unit_lengths(embeddings)
