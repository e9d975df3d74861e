"""Which shard an item lives on."""

from collections.abc import Iterable
from hashlib import blake2b


class ShardMap:
    """Rendezvous hashing over numbered shards.

    An item's shard is the one whose hash with it is highest, so one shard more or less moves only
    the items that must move, and every process that knows the count agrees without talking.
    """

    def __init__(self, shard_count: int, version: int = 1) -> None:
        """`version` is what shards and tokens compare; 1 or more. Raises ValueError otherwise."""
        if shard_count < 1:
            raise ValueError(f"shard_count is {shard_count}; there must be at least one")
        if version < 1:
            raise ValueError(f"version is {version}; versions count from 1")
        self.shard_count = shard_count
        self.version = version

    def owner(self, index_id: str, item_id: str) -> int:
        """Returns the number of the shard that has, or would have, the item."""
        key = f"{index_id}\0{item_id}".encode()
        return max(range(self.shard_count), key=lambda shard: _weight(shard, key))

    def group(self, index_id: str, item_ids: Iterable[str]) -> dict[int, list[str]]:
        """Returns the ids by owner, each list in the order given."""
        groups: dict[int, list[str]] = {}
        for item_id in item_ids:
            groups.setdefault(self.owner(index_id, item_id), []).append(item_id)
        return groups


def _weight(shard: int, key: bytes) -> bytes:
    return blake2b(key, digest_size=8, salt=shard.to_bytes(16, "little")).digest()
