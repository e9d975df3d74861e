"""The request id of one shard's part of a write, made of the caller's own."""

from hashlib import blake2b

from orchestrator_svc.shard_map import ShardMap


def shard_request_id(request_id: str, shard: int, shard_map: ShardMap) -> str:
    """Returns the id under which a shard keeps its part; empty for an empty one.

    The same in every attempt, so each shard knows its part again. By another shard map the parts
    are other writes, so they get other ids. Neither index nor items are part of it: a shard shall
    see that an id was used for two different writes.
    """
    if not request_id:
        return ""
    origin = f"{shard_map.version}/{shard_map.shard_count}/{shard}"
    return blake2b(f"{origin}/{request_id}".encode(), digest_size=16).hexdigest()
