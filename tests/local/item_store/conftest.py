"""Provides an empty item store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tandem.local.item_store.item_store import ItemStore
from tests.support.item_store.made_stores import MAP_BYTES


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Returns where a store will be."""
    return tmp_path / "shard"


@pytest.fixture
def store(path: Path) -> Iterator[ItemStore]:
    """Opens the store of a single shard."""
    store = ItemStore.open(path, 0, 1, map_bytes=MAP_BYTES)
    yield store
    store.close()
