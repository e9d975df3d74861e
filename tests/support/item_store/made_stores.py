"""What stores of tests are made with, and what is read back from them."""

from tandem.item_store.change_log import Change
from tandem.item_store.item_store import ItemStore, StoredEmbedding

MAP_BYTES = 16 << 20


def scanned(store: ItemStore, index_id: str) -> list[StoredEmbedding]:
    """Returns all of an index's items, which must all be sound."""
    found = list(store.scan_embeddings(index_id))
    return [item for item in found if isinstance(item, StoredEmbedding)]


def changes(store: ItemStore, sequence: int) -> list[Change] | None:
    """Returns the changes since a sequence, None where the store does not tell."""
    found = store.changes_since(sequence)
    return None if found is None else list(found)
