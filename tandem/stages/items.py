"""Defines an item as a shard stores it, and what deleting reports."""

from dataclasses import dataclass, field

from tandem.contract.attributes import Attributes
from tandem.contract.content import Content, Encoding


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
class Deleted:
    """Counts the deleted items, and names the sequence of the shard's change log."""

    count: int
    sequence: int
    is_complete: bool = True
    """For an index: whether none of it is left on the shard."""
