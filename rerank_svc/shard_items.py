"""Opens the item store of the neighbouring index_svc for reading."""

from pathlib import Path

from rerank_svc.settings import RerankSettings
from tandem.errors import ServiceUnavailable
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.verdict import CheckDepth, verify_in_child


def open_shard_items(settings: RerankSettings) -> ItemStore:
    """Opens the store after a child process has checked it, because a damaged one may crash us.

    Raises ServiceUnavailable if there is no store yet or it is damaged, and StoreRefused.
    """
    path = Path(settings.store_path)
    if (path / DATA_NAME).exists() and (damage := verify_in_child(path, CheckDepth.WALK).damage):
        raise ServiceUnavailable(
            service="rerank", why=f"shard corrupt: restore {path} from a backup ({damage[0]})"
        )
    return ItemStore.open(
        path,
        settings.shard_number,
        settings.shard_count,
        readonly=True,
        map_bytes=settings.store_map_bytes,
        allow_any_file_system=settings.allow_any_file_system,
    )
