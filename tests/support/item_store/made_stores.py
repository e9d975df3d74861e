"""Makes stores for tests, and reads them back."""

from tandem.local.item_store.change_log import Change
from tandem.local.item_store.item_store import ItemStore, StoredEmbedding

MAP_BYTES = 16 << 20


def scanned(store: ItemStore, index_id: str) -> list[StoredEmbedding]:
    """Returns all items of an index, which must all be sound."""
    found = list(store.scan_embeddings(index_id))
    return [item for item in found if isinstance(item, StoredEmbedding)]


def changes(store: ItemStore, sequence: int) -> list[Change] | None:
    """Returns the changes since a sequence; None if the store no longer has them."""
    found = store.changes_since(sequence)
    return None if found is None else list(found)
