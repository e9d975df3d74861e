"""Derives the request id of one shard's part of a write from the caller's."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

from tandem.errors import RequestIdReused
from tandem.search.shard_map import ShardMap


def shard_request_id(request_id: str, shard: int, shard_map: ShardMap) -> str:
    """Returns the id under which a shard remembers its part; empty for an empty one.

    It is the same in every attempt, so each shard recognises its part. Another shard map gives
    other parts, so it gives other ids. Index and items are not part of the id, so that a shard can
    detect an id that is used for two different writes.
    """
    if not request_id:
        return ""
    origin = f"{shard_map.version}/{shard_map.shard_count}/{shard}"
    return blake2b(f"{origin}/{request_id}".encode(), digest_size=16).hexdigest()


@contextmanager
def refused_by_name(request_id: str) -> Iterator[None]:
    """Names the caller's id where a shard refuses the one that it was given."""
    try:
        yield
    except RequestIdReused:
        raise RequestIdReused(request_id=request_id) from None
