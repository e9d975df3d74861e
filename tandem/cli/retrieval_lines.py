"""Explains how each shard searched."""

from collections.abc import Iterator

from tandem.cli.console import one_line
from tandem.client import SearchPath, SearchResult, SearchStrategy

_WAYS = {
    SearchStrategy.UNFILTERED: "asked the index",
    SearchStrategy.PRE_FILTER: "filtered first, then searched the index among the matches",
    SearchStrategy.POST_FILTER: "searched the index for more items, then filtered",
    SearchStrategy.EXACT_SCAN: "scanned all items that match the filter",
}


def retrieval_lines(result: SearchResult) -> Iterator[str]:
    """Yields a line for each searched shard and modality."""
    for retrieval in result.retrievals:
        path = retrieval.path
        modality = f", {retrieval.modality.value}s" if retrieval.modality else ""
        items = f"{retrieval.item_count:,} items"
        if path.matching_count is not None:
            items = f"{path.matching_count:,} of {items} match"
        yield one_line(f"shard {retrieval.shard_number}{modality}: {items}; {_way(path)}")


def _way(path: SearchPath) -> str:
    way = _WAYS.get(path.strategy, "used a strategy that this version does not know")
    if path.strategy is SearchStrategy.EXACT_SCAN and path.matching_count is None:
        way = "compared every item"
    parts = [f"{way} ({path.strategy.name.lower()})"]
    if path.index_type:
        parts.append(f"{path.index_type} on {path.device}")
    if path.fallback:
        parts.append(f"not as configured, {path.fallback.kind.name.lower()}: ")
        return "; ".join(parts) + path.fallback.why
    return "; ".join(parts)
