"""What an item store is asked to write, and what comes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tandem.corpus.item_record import StoredItem


@dataclass(frozen=True, slots=True, eq=False)
class Upsert:
    """Stores items, new or replacing those of the same id.

    Their ids differ, their embeddings have one dimension, and there is at least one.
    """

    index_id: str
    fingerprint: str
    items: Sequence[StoredItem]

    @property
    def record_count(self) -> int:
        """How many records it changes at most."""
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Deletes items by id; ids that are not there are no error."""

    index_id: str
    item_ids: Sequence[str]

    @property
    def record_count(self) -> int:
        """How many records it changes at most."""
        return len(self.item_ids)


ItemWrite = Upsert | Delete


@dataclass(frozen=True, slots=True)
class Committed:
    """The write is on disk, and the change log stands at `sequence`."""

    sequence: int
    deleted_count: int = 0
