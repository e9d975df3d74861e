"""Defines a batch of items to store."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tandem.contract.content import Content, TruncationPolicy
from tandem.contract.filtering.attributes import Attributes, check_attributes
from tandem.errors import TandemError


@dataclass(frozen=True, slots=True)
class IncomingItem:
    """Holds an item as it arrived, or why it cannot be accepted; raises AttributeInvalid."""

    item_id: str
    content: Content | TandemError
    attributes: Attributes = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_attributes(self.attributes)


@dataclass(frozen=True, slots=True)
class IngestBatch:
    """Holds the items of one request, and how to ingest them."""

    index_id: str
    items: Sequence[IncomingItem]
    request_id: str = ""
    """A batch already stored under this id is answered as then; an empty id is not remembered."""
    truncation_policy: TruncationPolicy = TruncationPolicy.ERROR


Outcomes: TypeAlias = "list[TandemError | None]"
"""One entry for each item of a batch, in its order; None means durably stored."""
