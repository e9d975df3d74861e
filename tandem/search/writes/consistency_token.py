"""Consistency tokens: a write returns one, and a search that gets it sees the write.

A token is opaque to callers: base64url without padding of, big-endian, the format's version (1
byte), the shard map's version (8) and shard count (2), for each shard its number (2) and sequence
(8), and a CRC-32 of all that (4). Sequences count over all indexes of a shard, so it names no
index.

Format 2 is of writes to an alias whose generations were switched. Between head and shards it has
the number of such aliases (2) and for each the CRC-32 of its name (4) and how often it was switched
(4): an orchestrator that knows fewer switches would read the generation before the write's.
"""

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from tandem.contract.limits import MAX_CONSISTENCY_TOKEN_COUNT
from tandem.errors import BatchSizeOutOfRange, ConsistencyTokenInvalid, ServiceUnavailable
from tandem.search.shard_map import ShardMap

_FORMAT, _SWITCHES_FORMAT = 1, 2
_HEAD = struct.Struct("!BqH")
_COUNT = struct.Struct("!H")
_SWITCH = struct.Struct("!II")
_ENTRY = struct.Struct("!Hq")
_CHECKSUM = struct.Struct("!I")


def make_token(
    sequences: Mapping[int, int],
    shard_map: ShardMap,
    switches: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Returns the token of sequences by shard number; without any, it requires nothing.

    `switches` says how often the aliases of the writes were switched.
    """
    named = [(zlib.crc32(alias.encode()), count) for alias, count in switches.items() if count]
    version = _SWITCHES_FORMAT if named else _FORMAT
    payload = _HEAD.pack(version, shard_map.version, shard_map.shard_count)
    if named:
        payload += _COUNT.pack(len(named)) + b"".join(_SWITCH.pack(*each) for each in named)
    payload += b"".join(_ENTRY.pack(*entry) for entry in sorted(sequences.items()))
    sealed = payload + _CHECKSUM.pack(zlib.crc32(payload))
    return base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()


def switch_count_of(tokens: Sequence[str], alias: str) -> int:
    """Returns how many switches of the alias the tokens' writes knew; raises as `read_tokens`."""
    name = zlib.crc32(alias.encode())
    opened = map(_opened, tokens[:MAX_CONSISTENCY_TOKEN_COUNT])
    return max((count for _, told, _ in opened for each, count in told if each == name), default=0)


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
    (map_version, shard_count), _, entries = _opened(token)
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
    if any(shard >= shard_count or sequence < 0 for shard, sequence in entries):
        raise ConsistencyTokenInvalid(why="it names an impossible shard or sequence")
    return entries


def _opened(token: str) -> tuple[tuple[int, int], list[tuple[int, int]], list[tuple[int, int]]]:
    """Returns version and shard count of the map, the switches of aliases, and the sequences."""
    sealed = _decoded(token)
    payload, checksum = sealed[: -_CHECKSUM.size], sealed[-_CHECKSUM.size :]
    if len(payload) < _HEAD.size or checksum != _CHECKSUM.pack(zlib.crc32(payload)):
        raise ConsistencyTokenInvalid(why="it is damaged or is not a consistency token")
    version, map_version, shard_count = _HEAD.unpack_from(payload)
    rest = payload[_HEAD.size :]
    try:
        if version not in (_FORMAT, _SWITCHES_FORMAT):
            raise struct.error
        switch_bytes = b""
        if version == _SWITCHES_FORMAT:
            end = _COUNT.size + _SWITCH.size * _COUNT.unpack_from(rest)[0]
            switch_bytes, rest = rest[_COUNT.size : end], rest[end:]
        switches = list(_SWITCH.iter_unpack(switch_bytes))
        return (map_version, shard_count), switches, list(_ENTRY.iter_unpack(rest))
    except struct.error:
        raise ConsistencyTokenInvalid(why=f"its format {version} is unknown") from None


def _decoded(token: str) -> bytes:
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise ConsistencyTokenInvalid(why="it is damaged or is not a consistency token") from None
