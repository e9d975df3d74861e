"""Depths: defaults that fit each other, and every number out of range refused by field."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.contract.search.query import Depth
from tandem.errors import KOutOfRange

Three = tuple[int | None, int | None, int | None]


@pytest.mark.parametrize(
    ("asked", "given_"),
    [
        ((None, None, None), (20, 20, 10)),
        ((5, None, None), (5, 5, 5)),
        ((None, 50, None), (50, 50, 10)),
        ((None, 5, None), (20, 5, 10)),
        ((None, 50, 100), (100, 50, 100)),
    ],
)
def test_defaults_fit_the_given_numbers(asked: Three, given_: tuple[int, int, int]) -> None:
    """The contract's defaults: 20 or more retrieved, the smaller of 20 reranked, 10 returned."""
    assert Depth.of(*asked) == Depth(*given_)


@pytest.mark.parametrize(
    ("asked", "name", "high"),
    [
        ((0, None, None), "retrieve_k", 1000),
        ((1001, None, None), "retrieve_k", 1000),
        ((None, 1001, None), "rerank_k", 1000),
        ((10, 11, None), "rerank_k", 10),
        ((None, None, 1001), "return_n", 1000),
        ((10, None, 11), "return_n", 10),
    ],
)
def test_values_out_of_range_are_refused_by_field(asked: Three, name: str, high: int) -> None:
    """The error names the range that the other fields leave."""
    with pytest.raises(KOutOfRange) as caught:
        Depth.of(*asked)

    assert name in caught.value.message
    assert f"{high:,}" in caught.value.message


numbers = st.none() | st.integers(1, 1000)


@given(numbers, numbers, numbers)
def test_every_accepted_depth_can_be_searched(
    retrieve_k: int | None, rerank_k: int | None, return_n: int | None
) -> None:
    """It never reranks or returns more than it retrieves, and keeps the given numbers."""
    try:
        depth = Depth.of(retrieve_k, rerank_k, return_n)
    except KOutOfRange:
        assert retrieve_k is not None
        assert max(rerank_k or 0, return_n or 0) > retrieve_k
        return

    assert 1 <= depth.rerank_k <= depth.retrieve_k <= 1000
    assert 1 <= depth.return_n <= depth.retrieve_k
    assert depth.retrieve_k == (retrieve_k or depth.retrieve_k)
    assert depth.rerank_k == (rerank_k or depth.rerank_k)
    assert depth.return_n == (return_n or depth.return_n)
