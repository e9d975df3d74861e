"""Defines how stored items are read, within the bytes that answers may hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tandem.contract.attributes import Attributes
from tandem.contract.content import Content, Encoding
from tandem.contract.deadline import Deadline
from tandem.contract.search.answer import FoundItem
from tandem.search.contents.content_room import Taking


@dataclass(frozen=True, slots=True)
class FetchedItem:
    """Holds what a shard returns of an item."""

    content: Content | None
    """None if the read left it out."""
    attributes: Attributes
    size_bytes: int = field(default=0, compare=False)
    """On the wire."""


class ItemReader(Protocol):
    """Reads the items of one shard, as index_svc does; `ShardClient` says what it raises."""

    async def get(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline, taking: Taking
    ) -> Mapping[str, FetchedItem]:
        """Returns items by their ids, and has `taking` account for their bytes."""
        ...

    async def get_encodings(
        self, index_id: str, item_ids: Sequence[str], deadline: Deadline
    ) -> tuple[Mapping[str, Encoding], str]:
        """Returns stored encodings by item id, and the fingerprint."""
        ...


def with_contents(
    found: Iterable[FoundItem], contents: Mapping[str, FetchedItem]
) -> list[FoundItem]:
    """Returns the items with what was read of them; a deleted one has nothing."""
    return [
        replace(
            item,
            content=contents[item.item_id].content,
            attributes=dict(sorted(contents[item.item_id].attributes.items())),
        )
        if item.item_id in contents
        else item
        for item in found
    ]
