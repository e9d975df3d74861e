"""Consistency tokens: they round-trip, and nothing else is accepted as one."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.errors import (
    BatchSizeOutOfRange,
    ConsistencyTokenInvalid,
    ServiceUnavailable,
    TandemError,
)
from tandem.search.shard_map import ShardMap
from tandem.search.writes.consistency_token import make_token, read_tokens

MAP = ShardMap(4)
sequences = st.dictionaries(st.integers(0, 3), st.integers(0, 2**63 - 1))


@given(sequences)
def test_a_token_names_the_sequences_it_was_made_of(told: dict[int, int]) -> None:
    """Of no shard, of some, of all, up to the largest sequence."""
    assert read_tokens([make_token(told, MAP)], MAP) == told


@given(st.lists(sequences, max_size=5))
def test_of_several_tokens_the_highest_sequence_of_each_shard_counts(
    several: list[dict[int, int]],
) -> None:
    """So a caller sends the tokens it has, in any order, without reading them."""
    read = read_tokens([make_token(told, MAP) for told in several], MAP)

    shards = {shard for told in several for shard in told}
    assert read == {shard: max(told.get(shard, 0) for told in several) for shard in shards}


@given(st.integers(0, 73), st.integers(1, 63))
def test_a_changed_character_is_found(place: int, step: int) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    token = make_token(dict.fromkeys(range(4), 10**9), MAP)
    other = alphabet[(alphabet.index(token[place]) + step) % 64]

    changed = token[:place] + other + token[place + 1 :]

    # The last character has bits that stand for nothing: a change in these changes nothing.
    try:
        assert read_tokens([changed], MAP) == read_tokens([token], MAP)
        assert place == len(token) - 1
    except ConsistencyTokenInvalid:
        pass


@given(st.text(max_size=200))
def test_any_text_is_refused_by_name(token: str) -> None:
    with pytest.raises(ConsistencyTokenInvalid):
        read_tokens([token], MAP)


@pytest.mark.parametrize(
    ("other", "error"),
    [(ShardMap(5), ConsistencyTokenInvalid), (ShardMap(4, version=2), ServiceUnavailable)],
)
def test_a_token_of_another_shard_map_is_refused(other: ShardMap, error: type[TandemError]) -> None:
    """Its shards are others; to a later map this orchestrator may switch soon."""
    with pytest.raises(error, match="shard map"):
        read_tokens([make_token({3: 7}, other)], MAP)


@pytest.mark.parametrize(
    "told",
    [
        b"\x02" + (1).to_bytes(8) + (4).to_bytes(2),
        b"\x01" + (1).to_bytes(8) + (4).to_bytes(2) + b"odd",
        b"\x01" + (1).to_bytes(8) + (4).to_bytes(2) + (4).to_bytes(2) + (1).to_bytes(8),
    ],
    ids=["newer format", "half an entry", "shard 4 of 4"],
)
def test_a_sealed_token_that_makes_no_sense_is_refused(told: bytes) -> None:
    """Its checksum is right; its payload is not."""
    sealed = told + zlib.crc32(told).to_bytes(4)

    with pytest.raises(ConsistencyTokenInvalid):
        read_tokens([base64.urlsafe_b64encode(sealed).decode().rstrip("=")], MAP)


def test_a_token_sealed_by_hand_is_accepted() -> None:
    """The control of the test above, and of the documented format."""
    told = b"\x01" + (1).to_bytes(8) + (4).to_bytes(2) + (3).to_bytes(2) + (7).to_bytes(8)
    sealed = told + zlib.crc32(told).to_bytes(4)
    token = base64.urlsafe_b64encode(sealed).decode().rstrip("=")

    assert read_tokens([token], MAP) == {3: 7}
    assert make_token({3: 7}, MAP) == token


def test_tokens_beyond_the_limit_are_refused() -> None:
    """256 are accepted; a stream's last token covers its others, so more are not needed."""
    token = make_token({0: 1}, MAP)

    assert read_tokens([token] * 256, MAP) == {0: 1}
    with pytest.raises(BatchSizeOutOfRange, match="consistency_tokens"):
        read_tokens([token] * 257, MAP)
