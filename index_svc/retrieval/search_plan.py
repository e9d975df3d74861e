"""Whether to filter before FAISS, after it, or to do without FAISS."""

from index_svc.retrieval.hit import Strategy

# To compare a row costs about what FAISS spends on one it looks at, and IVF looks at some percent.
_EXACT_SHARE = 0.01
_EXACT_COUNT = 2_000
# With most rows wanted it is cheaper to find a few more than to test each row's bit.
_POST_FILTER_SHARE = 0.5


def choose_strategy(
    matching_count: int | None, item_count: int, *, is_approximate: bool, takes_selector: bool
) -> Strategy:
    """Returns what to do for a filter that holds for so many items; None is no filter.

    `is_approximate`: there is a FAISS index to ask; `takes_selector`: it can skip rows.
    """
    if not is_approximate:
        return Strategy.EXACT_SCAN
    if matching_count is None:
        return Strategy.UNFILTERED
    if matching_count <= max(_EXACT_COUNT, _EXACT_SHARE * item_count):
        return Strategy.EXACT_SCAN
    if matching_count >= _POST_FILTER_SHARE * item_count or not takes_selector:
        return Strategy.POST_FILTER
    return Strategy.PRE_FILTER
