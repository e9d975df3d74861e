"""Explains why a search found nothing."""

import difflib
from collections.abc import Iterator

from tandem.client import Client, Query, SearchOptions, SearchResult
from tandem.contract.content import Modality
from tandem.contract.filtering.filters import AllOf, AnyOf, Exists, Filter, Not
from tandem.errors import TandemError

_LOOKED_AT_COUNT = 20


def why_empty(
    client: Client, query: Query, index_id: str, options: SearchOptions, result: SearchResult
) -> list[str]:
    """Returns a line for each cause that further searches reveal; none if something was found."""
    if result.items:
        return []
    if result.abstained:
        return [result.why_empty]
    found = list(_causes(client, query, index_id, options, result))
    return found or ["no item of the index fits the search"]


def _causes(
    client: Client, query: Query, index_id: str, options: SearchOptions, result: SearchResult
) -> Iterator[str]:
    if result.coverage.shard_count and result.coverage.covered_item_count == 0:
        yield f"index {index_id} has no {_wanted(options)} on the shards that answered"
        return
    plain = SearchOptions(
        target_modality=options.get("target_modality"),
        all_modalities_included=options.get("all_modalities_included", False),
        truncation_policy=options.get("truncation_policy"),
        consistency_tokens=options.get("consistency_tokens", ()),
        rerank_disabled=True,
    )
    try:
        where = options.get("where")
        if where is not None and not isinstance(where, str):
            missing = [
                name
                for name in dict.fromkeys(_names(where))
                if not client.search(
                    query, index_id=index_id, **plain | {"where": Exists(name), "return_n": 1}
                ).items
            ]
            if missing:
                near = client.search(
                    query,
                    index_id=index_id,
                    **plain | {"return_n": _LOOKED_AT_COUNT, "attributes_included": True},
                )
                known = sorted({name for item in near.items for name in item.attributes})
                yield from (_missing(name, known) for name in missing)
                return
            if not client.search(
                query, index_id=index_id, **plain | {"where": where, "return_n": 1}
            ).items:
                yield "no item is as --where says, though others have these attributes"
                return
        if (least := options.get("min_probability")) is not None:
            unbounded = options | {"min_probability": None, "content_included": False}
            left_out = client.search(query, index_id=index_id, **unbounded).items
            chances = [
                each.match_probability for each in left_out if each.match_probability is not None
            ]
            best = f"the most probable has {max(chances):.3f}" if chances else "none was scored"
            count = len(left_out)
            yield f"--min-probability {least:g} left out all {count} that were found; {best}"
    except TandemError:
        return  # The search was answered; an error of these further searches does not matter.


def _wanted(options: SearchOptions) -> str:
    target = options.get("target_modality")
    if target is None or options.get("all_modalities_included"):
        return "items to find"
    return "texts" if target is Modality.TEXT else "images"


def _names(where: Filter) -> Iterator[str]:
    """Yields the names of attributes that a filter requires."""
    match where:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from _names(part)
        case Not(part):
            # It matches items without the attribute.
            return
        case _:
            yield where.name


def _missing(name: str, known: list[str]) -> str:
    line = f"no item has an attribute {name!r}"
    if close := difflib.get_close_matches(name, known, n=1):
        return f"{line}; did you mean {close[0]!r}?"
    if known:
        return f"{line}; items have {', '.join(map(repr, known))}"
    return line
