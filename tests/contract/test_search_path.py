"""What a shard of another version sends is read."""

import pytest

from tandem.contract.search_path import KeywordState, SearchFallback, SearchStrategy


@pytest.mark.parametrize(
    "default", [SearchStrategy.UNKNOWN, SearchFallback.NONE, KeywordState.DISABLED]
)
def test_an_unknown_value_is_the_first_of_its_enum(
    default: SearchStrategy | SearchFallback | KeywordState,
) -> None:
    assert type(default)(99) is default
