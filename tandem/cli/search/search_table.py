"""Prints an answer for people: items, degradations and times."""

from collections.abc import Mapping

from tandem.cli.terminal.console import aligned, errors, one_line, out
from tandem.client import (
    Coverage,
    FoundItem,
    InferenceCost,
    SearchPath,
    SearchResult,
    SearchStrategy,
)
from tandem.contract.content import TextContent
from tandem.contract.filtering.attributes import AttributeValue
from tandem.contract.search_path import KeywordState

_INDENT = " " * 6
_LACKS = {
    "TOKENS_MISSING": "{missing} of the candidates have no tokens for the cross-encoder; ingest "
    "them again with the model that serves",
    "EMBEDDING_CACHED": "the encoder's model is unavailable; the encoding came from a cache; "
    "docs/runbook.md says what to do",
    "SHARD_REBUILDING": "a shard scanned all items, because its index is being built",
}
# What to do about a stage's stop, or a shard's words.
_WAYS = {
    "TIME": "rerank fewer (--rerank-k)",
    "UNAVAILABLE": "docs/runbook.md says what to do",
    "OUTPUT_INVALID": "tandem models verify checks the model",
    "OVERLOADED": "search again when the server has less to do",
    "NOT_SERVED": "tandem models add-neighbours adds such a model (docs/neighbours.md)",
    "MODEL_MISMATCH": "train it again over the served model (docs/neighbours.md)",
    "TOO_FEW_ITEMS": "ingest more texts and images",
    "DISABLED": "set INDEX_KEYWORDS_ENABLED=true for tandem up (docs/search.md)",
    "BEING_BUILT": "search again once they are read",
}
_STRATEGIES = {
    SearchStrategy.UNFILTERED: "asked the index",
    SearchStrategy.PRE_FILTER: "filtered first, then searched the index among the matches",
    SearchStrategy.POST_FILTER: "searched the index for more items, then filtered",
    SearchStrategy.EXACT_SCAN: "scanned all items that match the filter",
}


def print_result(
    result: SearchResult,
    count: int | None = None,
    *,
    attributes_shown: bool = False,
    paths_shown: bool = False,
) -> None:
    """Prints the items, or the first `count`, as a table, and a summary."""
    if items := result.items[:count]:
        _print_items(items, attributes_shown=attributes_shown)
    for warning in warnings(result):
        errors.print(f"warning: {warning}")
    withheld = result.rerank.probability_withheld
    out.print(
        f"{result.seconds.total * 1e3:.0f} ms, reranked {result.rerank.reranked_depth} "
        f"({result.rerank.stop.lower()}{f', no probabilities: {withheld}' if withheld else ''})"
    )
    if paths_shown:
        _print_for_developers(result)


def _print_for_developers(result: SearchResult) -> None:
    seconds = result.seconds
    stages = {
        "encode": seconds.encode,
        "retrieve": seconds.retrieve,
        "rerank": seconds.rerank,
        **({"neighbours": seconds.neighbours} if result.neighbours else {}),
        "rank": seconds.rank,
        "fetch": seconds.fetch,
        "total": seconds.total,
    }
    times = ", ".join(f"{name} {spent * 1e3:.1f} ms" for name, spent in stages.items())
    out.print(f"{times}; model {result.model_fingerprint}")
    out.print(_spent(result.cost))
    if (neighbours := result.neighbours) is not None:
        out.print(
            f"by neighbours {neighbours.scored_count} ({neighbours.stop.lower()}), "
            f"model {neighbours.neighbour_model or 'none'}"
        )
    for retrieval in result.retrievals:
        path = retrieval.path
        modality = f", {retrieval.modality.value}s" if retrieval.modality else ""
        items = f"{retrieval.item_count:,} items"
        if path.matching_count is not None:
            items = f"{path.matching_count:,} of {items} match"
        out.print(one_line(f"shard {retrieval.shard_number}{modality}: {items}; {_way(path)}"))


def warnings(result: SearchResult) -> list[str]:
    """Returns a line for each degradation of the answer."""
    lines = []
    for degradation in result.degradations:
        match degradation:
            case "SHARDS_MISSING":
                continue  # The coverage says it better, also if a server does not flag it.
            case "RERANK_SKIPPED":
                lines.append(f"not reranked: {_stop(result.rerank.stop)}")
            case "RERANK_PARTIAL":
                depth, stop = result.rerank.reranked_depth, _stop(result.rerank.stop)
                lines.append(f"only the first {depth} candidates were reranked: {stop}")
            case "NEIGHBOURS_SKIPPED":
                stop = _stop(result.neighbours.stop) if result.neighbours else ""
                lines.append(f"not ordered by neighbours: {stop}")
            case "NEIGHBOURS_PARTIAL":
                missing = result.neighbours.missing_shards if result.neighbours else {}
                lines.append(f"ordered without the neighbours of {_reasons(missing)}")
            case "KEYWORDS_SKIPPED" | "KEYWORDS_PARTIAL":
                lines.append(f"not searched by words: {_wordless(result)}")
            case _:
                lack = _LACKS.get(degradation, degradation)
                lines.append(lack.format(missing=result.rerank.missing_count))
    if not result.coverage.is_full:
        lines.insert(0, _partial(result.coverage))
    lines += [
        f"{use.used_token_count} of the {use.token_count} tokens of a text were read; "
        "--truncation-policy says how (docs/inputs.md)"
        for use in result.text_uses
        if use.is_truncated
    ]
    return lines


def _reasons(missing_shards: Mapping[int, str]) -> str:
    shards = sorted(missing_shards.items())
    return ", ".join(f"shard {number}: {reason}" for number, reason in shards)


def _stop(reason: str) -> str:
    """Returns a reason in words, with what to do about it."""
    words = reason.lower().replace("_", " ")
    return f"{words}; {_WAYS[reason]}" if reason in _WAYS else words


def _wordless(result: SearchResult) -> str:
    """Returns the shards that did not search by words, and why."""
    return ", ".join(
        f"shard {each.shard_number}: {_stop(each.keyword_state.name)}"
        for each in result.retrievals
        if each.keyword_state is not None and each.keyword_state is not KeywordState.SEARCHED
    )


def _partial(coverage: Coverage) -> str:
    items = f"{coverage.covered_item_count:,} items"
    if coverage.item_count is not None:
        items = f"{coverage.covered_item_count:,} of {coverage.item_count:,} items"
    shards = f"{coverage.answered_shard_count} of {coverage.shard_count} shards"
    missing = _reasons(coverage.missing_shards)
    return f"partial answer: {shards} ({items}) were searched; {missing}"


def _print_items(items: tuple[FoundItem, ...], *, attributes_shown: bool) -> None:
    """Prints a row for each item, whose id never wraps, with details on lines below it."""
    has_neighbours = any(item.neighbour_score is not None for item in items)
    heads = ["rank", "was", "similarity", "CE logit", "probability"]
    rows = [[*heads, *(["neighbours"] if has_neighbours else []), "item"]]
    for item in items:
        cells = [
            str(item.final_rank),
            str(item.retrieve_rank),
            f"{item.similarity:.3f}",
            "" if item.match_logit is None else f"{item.match_logit:+.2f}",
            "" if item.match_probability is None else f"{item.match_probability:.3f}",
        ]
        if has_neighbours:
            cells.append("" if item.neighbour_score is None else f"{item.neighbour_score:+.3f}")
        text = f": {item.content.text}" if isinstance(item.content, TextContent) else ""
        rows.append([*cells, f"{item.item_id}{text}"])
    head, *lines = aligned(rows, left=[len(rows[0]) - 1])
    out.print(head)
    for line, item in zip(lines, items, strict=True):
        out.print(line)
        if attributes_shown and item.attributes:
            shown = ", ".join(f"{name}={_written(each)}" for name, each in item.attributes.items())
            out.print(f"{_INDENT}{one_line(shown)}")
        if explanation := item.explanation:
            terms = (
                f"{each.weight:+g} x {each.name} {each.value:.3f}" for each in explanation.terms
            )
            places = (f"{stage} {rank}" for stage, rank in explanation.ranks.items())
            out.print(
                f"{_INDENT}score {item.score:+.3f}: {' '.join(terms)}; places: {', '.join(places)}"
            )


def _spent(cost: InferenceCost) -> str:
    """Returns the inference that the search caused."""
    parts = [f"{cost.pair_count} pairs"]
    if cost.padded_token_count:
        parts.append(f"{cost.token_count:,} tokens, {cost.padded_token_count:,} with padding")
    if cost.cache_hit_count:
        parts.append(f"{cost.cache_hit_count} more from caches")
    if cost.triton_compute_seconds is not None:
        parts.append(f"Triton computed {cost.triton_compute_seconds * 1e3:.1f} ms")
    if cost.triton_queue_seconds is not None:
        parts.append(f"queued {cost.triton_queue_seconds * 1e3:.1f} ms")
    return ", ".join(parts)


def _written(value: AttributeValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "|".join(value) if isinstance(value, tuple) else str(value)


def _way(path: SearchPath) -> str:
    way = _STRATEGIES.get(path.strategy, "used a strategy that this version does not know")
    if path.strategy is SearchStrategy.EXACT_SCAN and path.matching_count is None:
        way = "compared every item"
    parts = [f"{way} ({path.strategy.name.lower()})"]
    if path.index_type:
        parts.append(f"{path.index_type} on {path.device}")
    if path.fallback:
        parts.append(f"not as configured, {path.fallback.kind.name.lower()}: ")
        return "; ".join(parts) + path.fallback.why
    return "; ".join(parts)
