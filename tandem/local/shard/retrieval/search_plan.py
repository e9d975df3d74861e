"""Decides whether to filter before FAISS, after it, or to scan without FAISS."""

from tandem.contract.search_path import SearchStrategy

# Comparing a row costs about as much as FAISS spends on a row, and IVF visits a few percent.
_EXACT_SHARE = 0.01
_EXACT_COUNT = 2_000
# Where most rows match, finding a few more is cheaper than testing each row's bit.
_POST_FILTER_SHARE = 0.5


def choose_strategy(
    matching_count: int | None, item_count: int, *, is_approximate: bool, takes_selector: bool
) -> SearchStrategy:
    """Returns the strategy for a filter that matches so many items; None for no filter.

    `is_approximate` means that there is a FAISS index, `takes_selector` that it can skip rows.
    """
    if not is_approximate:
        return SearchStrategy.EXACT_SCAN
    if matching_count is None:
        return SearchStrategy.UNFILTERED
    if matching_count <= max(_EXACT_COUNT, _EXACT_SHARE * item_count):
        return SearchStrategy.EXACT_SCAN
    if matching_count >= _POST_FILTER_SHARE * item_count or not takes_selector:
        return SearchStrategy.POST_FILTER
    return SearchStrategy.PRE_FILTER
