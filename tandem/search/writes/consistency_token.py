"""Consistency tokens: a write returns one, and a search that gets it sees the write.

A token is opaque to callers: base64url without padding of, big-endian, the format's version (1
byte), the shard map's version (8) and shard count (2), for each shard its number (2) and sequence
(8), and a CRC-32 of all that (4). Sequences count over all indexes of a shard, so it names no
index.
"""

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Mapping

from tandem.contract.limits import MAX_CONSISTENCY_TOKEN_COUNT
from tandem.errors import BatchSizeOutOfRange, ConsistencyTokenInvalid, ServiceUnavailable
from tandem.search.shard_map import ShardMap

_FORMAT = 1
_HEAD = struct.Struct("!BqH")
_ENTRY = struct.Struct("!Hq")
_CHECKSUM = struct.Struct("!I")


def make_token(sequences: Mapping[int, int], shard_map: ShardMap) -> str:
    """Returns the token of sequences by shard number; without any, it requires nothing."""
    entries = (_ENTRY.pack(*entry) for entry in sorted(sequences.items()))
    payload = _HEAD.pack(_FORMAT, shard_map.version, shard_map.shard_count) + b"".join(entries)
    sealed = payload + _CHECKSUM.pack(zlib.crc32(payload))
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def read_tokens(tokens: Iterable[str], shard_map: ShardMap) -> dict[int, int]:
    """Returns, by shard number, the highest sequence that any of the tokens names.

    Raises ConsistencyTokenInvalid, ServiceUnavailable for one of a later shard map, and
    BatchSizeOutOfRange past MAX_CONSISTENCY_TOKEN_COUNT tokens.
    """
    tokens = list(tokens)
    if len(tokens) > MAX_CONSISTENCY_TOKEN_COUNT:
        raise BatchSizeOutOfRange(
            name="consistency_tokens", got=len(tokens), low=0, high=MAX_CONSISTENCY_TOKEN_COUNT
        )
    highest: dict[int, int] = {}
    for token in tokens:
        for shard, sequence in _read(token, shard_map):
            highest[shard] = max(sequence, highest.get(shard, 0))
    return highest


def _read(token: str, shard_map: ShardMap) -> list[tuple[int, int]]:
    sealed = _decoded(token)
    payload, checksum = sealed[: -_CHECKSUM.size], sealed[-_CHECKSUM.size :]
    if len(payload) < _HEAD.size or checksum != _CHECKSUM.pack(zlib.crc32(payload)):
        raise ConsistencyTokenInvalid(why="it is damaged or is not a consistency token")
    version, map_version, shard_count = _HEAD.unpack_from(payload)
    entry_bytes = payload[_HEAD.size :]
    if version != _FORMAT or len(entry_bytes) % _ENTRY.size:
        raise ConsistencyTokenInvalid(why=f"its format {version} is unknown")
    if (map_version, shard_count) == shard_map.moved_from:
        return []  # What it names was moved here before the first search.
    if map_version > shard_map.version:
        why = f"this orchestrator has not switched to shard map {map_version} of the token"
        raise ServiceUnavailable(service="index", why=why)
    if (map_version, shard_count) != (shard_map.version, shard_map.shard_count):
        raise ConsistencyTokenInvalid(
            why=f"it is of shard map {map_version} with {shard_count} shards, this is "
            f"{shard_map.version} with {shard_map.shard_count}"
        )
    entries: list[tuple[int, int]] = list(_ENTRY.iter_unpack(entry_bytes))
    if any(shard >= shard_count or sequence < 0 for shard, sequence in entries):
        raise ConsistencyTokenInvalid(why="it names an impossible shard or sequence")
    return entries


def _decoded(token: str) -> bytes:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ConsistencyTokenInvalid(why="it is damaged or is not a consistency token") from None
