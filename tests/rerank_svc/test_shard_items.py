"""The shard's store is opened when it is there and sound, and waited for until then."""

from pathlib import Path

import pytest

from rerank_svc.settings import RerankSettings
from rerank_svc.shard_items import open_shard_items
from tandem.errors import ServiceUnavailable
from tandem.local.item_store.environment import DATA_NAME
from tandem.local.item_store.item_store import ItemStore
from tandem.local.item_store.refused import StoreRefused
from tandem.stages.item_write import Upsert
from tests.support.item_store.made_items import FINGERPRINT, text_item


def settings(path: Path, shard_number: int = 0) -> RerankSettings:
    """Returns settings of a service that reads the shard at the path."""
    return RerankSettings(
        triton_address="127.0.0.1:1",
        model_repository="nowhere",
        store_path=str(path),
        shard_number=shard_number,
        shard_count=2,
        store_map_bytes=1 << 20,
    )


def make_store(path: Path) -> None:
    """Makes shard 0 of 2, of 200 items."""
    store = ItemStore.open(path, 0, 2)
    store.apply([Upsert("scenes", FINGERPRINT, [text_item(f"{n}", n) for n in range(200)])])
    store.close()


def test_the_store_is_waited_for_and_opened(tmp_path: Path) -> None:
    """Before there is one it is asked to retry; then its items can be read."""
    with pytest.raises(ServiceUnavailable):
        open_shard_items(settings(tmp_path))
    make_store(tmp_path)

    store = open_shard_items(settings(tmp_path))

    assert store.read_stored_tokens("scenes", ["7", "missing"])[1] is None
    store.close()


def test_a_damaged_store_is_not_opened(tmp_path: Path) -> None:
    """Reading it would end the process; it is waited for until it is restored."""
    make_store(tmp_path)
    data = bytearray((tmp_path / DATA_NAME).read_bytes())
    data[2 * 4096 :] = bytes(len(data) - 2 * 4096)
    (tmp_path / DATA_NAME).write_bytes(data)

    with pytest.raises(ServiceUnavailable, match="shard corrupt: restore"):
        open_shard_items(settings(tmp_path))


def test_another_shards_store_is_refused(tmp_path: Path) -> None:
    """A wrong volume is not waited for."""
    make_store(tmp_path)

    with pytest.raises(StoreRefused, match="is shard 0 of 2, opened as shard 1 of 2"):
        open_shard_items(settings(tmp_path, shard_number=1))
