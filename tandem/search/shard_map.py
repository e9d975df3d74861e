"""Maps items to shards."""

from collections.abc import Iterable
from hashlib import blake2b

from tandem.contract.generation_ids import alias_of


class ShardMap:
    """Assigns items to numbered shards by rendezvous hashing.

    An item's shard is the one whose hash with it is highest, so adding or removing a shard moves
    only the items that must move, and all processes that know the count agree. An item is on one
    shard in all generations of an index.
    """

    def __init__(
        self, shard_count: int, version: int = 1, moved_from: tuple[int, int] | None = None
    ) -> None:
        """Takes the `version`, 1 or more, that shards and tokens compare; raises ValueError.

        `moved_from` is version and shard count of the map whose items were all moved to these
        shards before they served.
        """
        if shard_count < 1:
            raise ValueError(f"shard_count is {shard_count}; there must be at least one")
        if version < 1:
            raise ValueError(f"version is {version}; versions count from 1")
        self.shard_count = shard_count
        self.version = version
        self.moved_from = moved_from

    def owner(self, index_id: str, item_id: str) -> int:
        """Returns the number of the shard on which the item belongs."""
        if self.shard_count == 1:
            return 0
        key = f"{alias_of(index_id)}\0{item_id}".encode()
        return max(range(self.shard_count), key=lambda shard: _weight(shard, key))

    def group(self, index_id: str, item_ids: Iterable[str]) -> dict[int, list[str]]:
        """Groups the ids by owner, each list in the order given."""
        groups: dict[int, list[str]] = {}
        for item_id in item_ids:
            groups.setdefault(self.owner(index_id, item_id), []).append(item_id)
        return groups


def _weight(shard: int, key: bytes) -> bytes:
    return blake2b(key, digest_size=8, salt=shard.to_bytes(16, "little")).digest()
