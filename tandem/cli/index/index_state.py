"""`tandem index list` and `show`: print what the orchestrator says of indexes."""

from collections.abc import Mapping
from typing import Annotated

import typer

from tandem.cli.index.generations import listed_generations, print_generations
from tandem.cli.options import ADDRESS
from tandem.cli.terminal.console import errors, out
from tandem.cli.terminal.json_answer import answer, plain, with_json
from tandem.client import (
    Access,
    Client,
    IndexDescription,
    IndexPart,
    KeywordState,
    Modality,
)

_KEYWORDS = {
    KeywordState.SEARCHED: "kept",
    KeywordState.BEING_BUILT: "being read from the store",
    KeywordState.DISABLED: "not kept",
}


@with_json
def list_indexes(address: ADDRESS = "127.0.0.1:7400") -> None:
    """List the indexes that there are, their items, and how far each generation is."""
    with Client(address, access=Access.from_environment()) as client:
        listing = client.list_indexes()
    aliases = listed_generations(address)
    rows = [["index", "images", "texts", "model"]]
    for each in listing.indexes:
        counts = (f"{each.image_count:,}", f"{each.text_count:,}")
        rows.append([each.index_id, *counts, each.model_fingerprint[:12]])
    out.rows(rows, left=[0])
    answer(plain(listing) | {"aliases": print_generations(aliases)})
    if not listing.indexes:
        errors.print("there is no index yet: store items with tandem ingest")
    _warn(listing.missing_shards)


@with_json
def show(
    index_id: Annotated[str, typer.Argument(help="index id, for example scenes")],
    address: ADDRESS = "127.0.0.1:7400",
) -> None:
    """Show an index: items, index types, live recall."""
    with Client(address, access=Access.from_environment()) as client:
        found = client.describe_index(index_id=index_id)
    answer({"index_id": index_id} | plain(found))
    coverage = found.coverage
    out.print(
        f"{index_id}: {found.item_count(Modality.IMAGE):,} images and "
        f"{found.item_count(Modality.TEXT):,} texts on {coverage.answered_shard_count} of "
        f"{coverage.shard_count} shards, model {found.model_fingerprint[:12]}, "
        f"{found.embedding_dimension} dimensions"
    )
    rows = [["shard", "of", "type", "items", "dead", "tail", "MB", "built", "live"]]
    for shard in found.shards:
        rows += [[str(shard.shard_number), *_cells(part)] for part in shard.parts]
    out.rows(rows, left=range(3))
    for recall in found.live_recalls:
        out.print(
            f"live recall, {recall.query_modality.value} to {recall.target_modality.value}: "
            f"{100 * recall.recall:.1f} % in {recall.search_count:,} searches"
        )
    if not found.live_recalls:
        out.print("live recall: no recent search was repeated exactly")
    for note in _notes(found):
        out.print(note)
    _warn(found.coverage.missing_shards)


def _warn(missing_shards: Mapping[int, str]) -> None:
    for number, reason in sorted(missing_shards.items()):
        errors.print(f"warning: shard {number} did not answer ({reason})")


def _cells(part: IndexPart) -> list[str]:
    parameters = " ".join(f"{name}={value:g}" for name, value in sorted(part.parameters.items()))
    return [
        part.modality.value,
        f"{part.index_type} {parameters}".strip(),
        f"{part.item_count:,}",
        f"{part.dead_row_count:,}",
        f"{part.tail_row_count:,}",
        f"{part.index_bytes / 1e6:.1f}",
        "" if part.built_recall is None else f"{100 * part.built_recall:.1f}",
        " ".join(f"{100 * each.recall:.1f}" for each in part.live_recalls),
    ]


def _notes(found: IndexDescription) -> list[str]:
    notes = [
        f"{part.modality.value}s on shard {shard.shard_number}: {note}"
        for shard in found.shards
        for part in shard.parts
        for note in (part.fallback.why, part.activity)
        if note
    ]
    states = {shard.keyword_state for shard in found.shards}
    in_order = sorted(states, key=lambda state: state.value)
    return notes + [f"words for hybrid search: {_KEYWORDS[state]}" for state in in_order]
